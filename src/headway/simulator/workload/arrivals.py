"""When clients come: renewal processes, a day's shape, all at once, or as fast as they are served.

Gaps have mean 1 in a time that runs at the rate: a busier phase is the same process, faster.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat

import numpy as np

from headway.simulator.workload.draws import BLOCK, Uniforms
from headway.simulator.workload.exact_math import Floats, exp, exponentials, log, normals
from headway.simulator.workload.lengths import number
from headway.simulator.workload.waits import (
    LATEST_NS,
    MAX_SECONDS,
    NO_WAIT,
    WaitLaw,
    whole_nanoseconds,
)

MAX_RATE = 1e9
MAX_VARIATION = 100.0
MAX_CLIENTS = 10_000_000  # who all begin at once


@dataclass(frozen=True, slots=True)
class Renewal:
    """Independent gamma gaps: Poisson where `variation` is 1, a constant rate where it is 0.

    `rate` per second; `variation`: standard deviation of the gaps over their mean, bursty above 1.
    """

    rate: float
    variation: float = 1.0

    def __post_init__(self) -> None:
        _check_rate(self.rate)
        if not self.rate:
            raise ValueError("a rate is above 0")
        _check_variation(self.variation)

    @property
    def text(self) -> str:
        kind = {1.0: "poisson", 0.0: "constant"}.get(self.variation, "gamma")
        rest = f":{number(self.variation)}" if kind == "gamma" else ""
        return f"{kind}:{number(self.rate)}{rest}"

    def times_ns(self, uniforms: Uniforms) -> Iterator[list[int]]:
        """Ascending times, endless, in blocks."""
        for busy in _busy_times(self.variation, uniforms):
            with np.errstate(over="ignore"):  # infinitely late is too late
                seconds = busy / self.rate
            yield from _in_time(seconds)


@dataclass(frozen=True, slots=True)
class Phases:
    """A rate for each of these (seconds, rate) in turn, over and over: a day's shape."""

    phases: tuple[tuple[float, float], ...]
    variation: float = 1.0

    def __post_init__(self) -> None:
        for seconds, rate in self.phases:
            if not 0 < seconds <= MAX_SECONDS:
                raise ValueError(
                    f"a phase lasts longer than 0 seconds and at most {number(MAX_SECONDS)}, "
                    f"got {number(seconds)}"
                )
            _check_rate(rate)
        if not any(rate for _, rate in self.phases):
            raise ValueError("at least one phase has a rate above 0")
        _check_variation(self.variation)

    @property
    def text(self) -> str:
        shape = ",".join(f"{number(seconds)}@{number(rate)}" for seconds, rate in self.phases)
        return f"phases:{shape}" + ("" if self.variation == 1 else f":{number(self.variation)}")

    @property
    def mean_rate(self) -> float:
        return sum(s * rate for s, rate in self.phases) / sum(s for s, _ in self.phases)

    def times_ns(self, uniforms: Uniforms) -> Iterator[list[int]]:
        """Ascending times, endless, in blocks."""
        phases = [(seconds, rate) for seconds, rate in self.phases if seconds]
        rates = np.array([rate for _, rate in phases])
        ends = np.cumsum([seconds for seconds, _ in phases])
        expected = np.cumsum([seconds * rate for seconds, rate in phases])
        for busy in _busy_times(self.variation, uniforms):
            with np.errstate(over="ignore"):
                rounds = np.floor(busy / expected[-1])
                rest = np.clip(busy - rounds * expected[-1], 0, np.nextafter(expected[-1], 0))
                phase = np.searchsorted(expected, rest, side="right")
                before_end = (expected[phase] - rest) / rates[phase]
                seconds = rounds * ends[-1] + (ends[phase] - before_end)
            yield from _in_time(seconds)


@dataclass(frozen=True, slots=True)
class AtOnce:
    """Everyone is there at time zero."""

    @property
    def text(self) -> str:
        return "at-once"

    def times_ns(self, uniforms: Uniforms) -> Iterator[list[int]]:
        del uniforms
        return repeat([0] * BLOCK)


@dataclass(frozen=True, slots=True)
class ClosedLoop:
    """`clients` who each ask again `think` after their last answer; all begin at time zero."""

    clients: int
    think: WaitLaw = NO_WAIT

    def __post_init__(self) -> None:
        if not 1 <= self.clients <= MAX_CLIENTS:
            raise ValueError(
                f"a closed loop has at least 1 client and at most {MAX_CLIENTS:,}, "
                f"got {self.clients}"
            )

    @property
    def text(self) -> str:
        return f"closed:{self.clients}" + ("" if self.think == NO_WAIT else f":{self.think.text}")

    def times_ns(self, uniforms: Uniforms) -> Iterator[list[int]]:
        """Of the first request of each client; the later ones follow answers."""
        del uniforms
        yield [0] * self.clients


Arrivals = Renewal | Phases | AtOnce | ClosedLoop


def _busy_times(variation: float, uniforms: Uniforms) -> Iterator[Floats]:
    """Ascending times of a process with mean gap 1; one of constant gaps begins at 0."""
    now = -1.0 if variation == 0 else 0.0
    for gaps in _unit_gaps(variation, uniforms):
        gaps[0] += now  # before the sum, so that blocks of any size add up to the same
        times = np.cumsum(gaps)
        now = float(times[-1])
        yield times


def _in_time(seconds: Floats) -> Iterator[list[int]]:
    """Nanoseconds as far as they can be counted. Raises ValueError for whoever wants the rest."""
    times_ns = whole_nanoseconds(seconds)
    num_in_time = int(np.searchsorted(times_ns, LATEST_NS))
    yield times_ns[:num_in_time].tolist()
    if num_in_time < len(times_ns):
        raise ValueError(
            "arrivals lie more than 146 years after the start, beyond what 63 bits of "
            "nanoseconds hold: give a higher rate, or fewer requests"
        )


def _unit_gaps(variation: float, uniforms: Uniforms) -> Iterator[Floats]:
    if variation == 0:
        while True:
            yield np.ones(BLOCK)
    if variation == 1:
        while True:
            yield exponentials(uniforms.take(BLOCK))
    shape = 1 / (variation * variation)
    while True:
        gaps = _gammas(shape, uniforms.take(4 * BLOCK).reshape(BLOCK, 4)) / shape
        if len(gaps):
            yield gaps


def _gammas(shape: float, uniforms: Floats) -> Floats:
    """Gamma deviates from rows of four uniforms; those that Marsaglia and Tsang reject give none.

    Below shape 1: one of shape + 1 times U^(1 / shape).
    """
    first, second, threshold, boost = uniforms.T
    deviates, valid = normals(first, second)
    d = (shape if shape >= 1 else shape + 1) - 1 / 3
    v = 1.0 + deviates / math.sqrt(9 * d)
    v = v * v * v
    valid &= v > 0
    v = np.where(valid, v, 1.0)
    squeeze = 0.5 * (deviates * deviates) + d * (1.0 - v + log(v))
    valid &= log(1.0 - threshold) < squeeze
    gammas = (d * v)[valid]
    if shape < 1:
        gammas = gammas * exp(log(1.0 - boost[valid]) / shape)
    return gammas


def _check_rate(rate: float) -> None:
    if not 0 <= rate <= MAX_RATE:
        raise ValueError(
            f"a rate is between 0 and {number(MAX_RATE)} per second, got {number(rate)}"
        )


def _check_variation(variation: float) -> None:
    if not 0 <= variation <= MAX_VARIATION:
        raise ValueError(
            f"a coefficient of variation is between 0 and {number(MAX_VARIATION)}, "
            f"got {number(variation)}"
        )
