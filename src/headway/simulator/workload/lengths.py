"""Laws of lengths: every one a finite table of probabilities, so that its moments are exact.

A draw looks a uniform number up in the table; what `mean()` and `expected_max()` say is what is
drawn. `text` is the short form that `spec.parse_lengths` reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from headway.simulator.workload.exact_math import Floats, Integers

DEFAULT_RANGE = (1, 131_072)
MAX_LENGTH = 2**24


@dataclass(frozen=True, slots=True)
class LengthLaw:
    """A distribution over whole numbers of at least 1.

    `values` ascend, [n] int64, all of them possible; `cumulative`, [n] float64, is the probability
    of at most each, its last entry 1. Two laws of the same text are equal.
    """

    text: str
    values: Integers = field(compare=False, repr=False)
    cumulative: Floats = field(compare=False, repr=False)

    def at(self, uniforms: Floats) -> Integers:
        """The lengths that uniforms in [0, 1) stand for; larger for larger ones."""
        if len(self.values) == 1:
            return np.full(len(uniforms), self.values[0])
        return self.values[np.searchsorted(self.cumulative, uniforms, side="right")]

    def probabilities(self) -> Floats:
        return np.diff(self.cumulative, prepend=0.0)

    def mean(self) -> float:
        return math.fsum(self.values * self.probabilities())

    def standard_deviation(self) -> float:
        centred = self.values - self.mean()
        return math.sqrt(math.fsum(centred * centred * self.probabilities()))

    def quantile(self, share: float) -> int:
        """The least length that at least this share of the draws do not exceed."""
        index = int(np.searchsorted(self.cumulative, share, side="left"))
        return int(self.values[min(index, len(self.values) - 1)])

    def expected_max(self, count: int) -> float:
        """The mean of the largest of `count` independent draws: what a static batch waits for."""
        largest = self.cumulative**count
        return math.fsum(self.values * np.diff(largest, prepend=0.0))


def fixed(length: int) -> LengthLaw:
    return _law(f"fixed:{length}", [length], [1.0])


@lru_cache(maxsize=64)
def uniform(low: int, high: int) -> LengthLaw:
    """Whole numbers from `low` to `high`, all alike."""
    _check_range(low, high)
    values = np.arange(low, high + 1)
    return _law(f"uniform:{low}-{high}", values, np.arange(1, len(values) + 1) / len(values))


@lru_cache(maxsize=64)
def log_uniform(low: float, high: float) -> LengthLaw:
    """Equal shares for equal ratios between `low` and `high`, rounded to whole numbers."""
    _check_range(low, high)
    text = f"loguniform:{number(low)}-{number(high)}"
    return _law(text, *_log_uniform_table(low, high))


@lru_cache(maxsize=64)
def spread(mean: float, ratio: float) -> LengthLaw:
    """Log-uniform with this mean before rounding, its longest `ratio` times its shortest."""
    if not (math.isfinite(mean) and 1 <= ratio < math.inf):
        raise ValueError(f"a spread needs a ratio of at least 1, got {number(ratio)}")
    if ratio == 1:
        return _law(f"spread:{number(mean)}:1", [_rounded(mean)], [1.0])
    low = mean * math.log(ratio) / (ratio - 1)
    _check_range(low, low * ratio)
    text = f"spread:{number(mean)}:{number(ratio)}"
    return _law(text, *_log_uniform_table(low, low * ratio))


@lru_cache(maxsize=64)
def lognormal(
    mean: float, sigma: float, low: int = DEFAULT_RANGE[0], high: int = DEFAULT_RANGE[1]
) -> LengthLaw:
    """e^N(ln mean - sigma^2 / 2, sigma), rounded, then clipped to [low, high].

    `mean` is that of the lognormal itself; `mean()` tells what rounding and clipping leave of it.
    """
    _check_range(low, high)
    if not (0 < mean < math.inf and 0 < sigma < math.inf):
        raise ValueError(
            f"a lognormal needs a mean and a sigma above 0, got {number(mean)} and {number(sigma)}"
        )
    mu = math.log(mean) - sigma * sigma / 2
    scale = 1 / (sigma * math.sqrt(2))
    below = [0.5 * math.erfc((mu - math.log(value + 0.5)) * scale) for value in range(low, high)]
    limits = "" if (low, high) == DEFAULT_RANGE else f":{low}-{high}"
    text = f"lognormal:{number(mean)}:{number(sigma)}{limits}"
    return _law(text, np.arange(low, high + 1), [*below, 1.0])


def empirical(lengths: Iterable[int]) -> LengthLaw:
    """The lengths of a list, each as likely as it is frequent there."""
    counts: dict[int, int] = {}
    for length in lengths:
        counts[length] = counts.get(length, 0) + 1
    return histogram(counts)


def histogram(counts: Mapping[int, float]) -> LengthLaw:
    """Lengths by weight."""
    kept = {int(length): counts[length] for length in sorted(counts) if counts[length]}
    weights = np.array(list(kept.values()), dtype=np.float64)
    if not kept or not (np.isfinite(weights).all() and (weights > 0).all()):
        raise ValueError("a histogram needs lengths with weights above 0")
    text = "histogram:" + ",".join(f"{length}={number(w)}" for length, w in kept.items())
    sums = np.cumsum(weights)
    return _law(text, list(kept), sums / sums[-1])


def mixture(parts: Sequence[tuple[float, LengthLaw]]) -> LengthLaw:
    """Each draw from one of the laws, chosen by weight."""
    weights = [weight for weight, _ in parts]
    if not parts or not all(0 < weight < math.inf for weight in weights):
        raise ValueError("a mixture needs laws with weights above 0")
    if any(law.text.startswith("mixture:") for _, law in parts):
        raise ValueError("a mixture is not made of mixtures: multiply their weights out")
    values = np.unique(np.concatenate([law.values for _, law in parts]))
    cumulative = np.zeros(len(values))
    for weight, law in parts:
        index = np.searchsorted(law.values, values, side="right")
        padded = np.concatenate([[0.0], law.cumulative])
        cumulative += padded[index] * (weight / math.fsum(weights))
    text = "mixture:" + "+".join(f"{number(weight)}*{law.text}" for weight, law in parts)
    return _law(text, values, cumulative)


def number(value: float) -> str:
    """The shortest text that reads back as this number, without a plus sign."""
    if float(value).is_integer() and abs(value) < 1e15:
        return str(int(value))
    return repr(float(value)).replace("e+", "e")


def _law(
    text: str, values: Sequence[int] | Integers, cumulative: Sequence[float] | Floats
) -> LengthLaw:
    if values[0] < 1 or values[-1] > MAX_LENGTH:
        raise ValueError(f"{text.partition(':')[0]}: lengths lie between 1 and {MAX_LENGTH}")
    values = np.asarray(values, dtype=np.int64)
    cumulative = np.minimum(np.asarray(cumulative, dtype=np.float64), 1.0)
    cumulative[-1] = 1.0
    possible = np.diff(cumulative, prepend=0.0) > 0
    values, cumulative = values[possible], cumulative[possible]
    values.flags.writeable = cumulative.flags.writeable = False
    return LengthLaw(text, values, cumulative)


def _log_uniform_table(low: float, high: float) -> tuple[Integers, list[float]]:
    values = range(_rounded(low), _rounded(high) + 1)
    width = math.log(high / low) or 1.0
    below = [math.log(min(value + 0.5, high) / low) / width for value in values]
    return np.array(values), below


def _rounded(length: float) -> int:
    """Halves up, at least 1."""
    return max(1, math.floor(length + 0.5))


def _check_range(low: float, high: float) -> None:
    if not 0 < low <= high <= MAX_LENGTH:
        raise ValueError(
            f"a range of lengths goes from above 0 to at most {MAX_LENGTH}, "
            f"got {number(low)}-{number(high)}"
        )
