"""What sets clients apart: words shared with others, turns, patience, what they declare."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np

from headway.simulator.workload.exact_math import Floats, Integers
from headway.simulator.workload.lengths import LengthLaw, number
from headway.simulator.workload.waits import NO_WAIT, WaitLaw

Value = TypeVar("Value", str, int)
MAX_PREFIXES = 1_000_000


@dataclass(frozen=True, slots=True)
class Choice(Generic[Value]):
    """One of these values for each session, by weight."""

    weights: tuple[tuple[Value, float], ...]
    _cumulative: Floats = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        weights = [weight for _, weight in self.weights]
        if not weights or not all(0 < weight < math.inf for weight in weights):
            raise ValueError("a choice needs values with weights above 0")
        sums = np.cumsum(np.array(weights, dtype=np.float64))
        object.__setattr__(self, "_cumulative", sums / sums[-1])

    @classmethod
    def of(cls, weights: Mapping[Value, float]) -> Choice[Value]:
        return cls(tuple(weights.items()))

    def at(self, uniforms: Floats) -> list[Value]:
        values = [value for value, _ in self.weights]
        if len(values) == 1:
            return values * len(uniforms)
        indices = np.searchsorted(self._cumulative, uniforms, side="right")
        return [values[index] for index in indices.tolist()]


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Beginnings that sessions share, say system prompts; they come before the prompt's own words.

    `skew`: the n-th is as likely as n^-skew (Zipf); 0 makes all alike. `share`: of the sessions
    that have one.
    """

    count: int
    tokens: LengthLaw
    skew: float = 0.0
    share: float = 1.0

    def __post_init__(self) -> None:
        if not 1 <= self.count <= MAX_PREFIXES:
            raise ValueError(f"there are 1 to {MAX_PREFIXES} prefixes, got {self.count}")
        if not 0 <= self.skew <= 10:
            raise ValueError(f"a skew is between 0 and 10, got {number(self.skew)}")
        check_share(self.share)

    def at(self, uniforms: Floats) -> list[int]:
        """Indices of prefixes; -1 for none."""
        cumulative = np.cumsum(np.arange(1, self.count + 1, dtype=np.float64) ** -self.skew)
        cumulative *= self.share / cumulative[-1]
        indices = np.searchsorted(cumulative, uniforms, side="right")
        if self.share == 1:
            indices = np.minimum(indices, self.count - 1)
        return np.where(indices < self.count, indices, -1).tolist()


@dataclass(frozen=True, slots=True)
class Turns:
    """A session of several requests: each prompt is all that was said before, and new words.

    `think` passes between an answer and the next prompt. `prompt_tokens`: the new words of later
    turns, those of the first unless given.
    """

    number: LengthLaw
    think: WaitLaw = NO_WAIT
    prompt_tokens: LengthLaw | None = None


@dataclass(frozen=True, slots=True)
class Leaving:
    """This share of the requests is given up by its client so long after arriving."""

    share: float
    after: WaitLaw

    def __post_init__(self) -> None:
        check_share(self.share)

    def at(self, chances: Floats, patience: Floats) -> list[int | None]:
        """Nanoseconds after which each client goes, at least 1; None for those who stay."""
        after = np.maximum(self.after.at(patience), 1).tolist()
        stays = (chances >= self.share).tolist()
        return [None if stay else wait for stay, wait in zip(stays, after, strict=True)]


@dataclass(frozen=True, slots=True)
class Declared:
    """The max_tokens that clients ask for: a multiple of the output to come, or a constant."""

    multiple: float | None = None
    constant: int | None = None

    def __post_init__(self) -> None:
        if self.multiple is not None and self.constant is not None:
            raise ValueError("max_tokens is a multiple of the output or a constant, not both")
        if self.multiple is not None and not 1 <= self.multiple <= 1e6:
            raise ValueError(
                f"max_tokens is at least 1 times the output, got {number(self.multiple)}"
            )
        if self.constant is not None and self.constant < 1:
            raise ValueError(f"max_tokens is at least 1, got {self.constant}")

    def at(self, outputs: Integers) -> list[int | None]:
        if self.multiple is not None:
            return np.ceil(outputs * self.multiple).astype(np.int64).tolist()
        return [self.constant] * len(outputs)


NOT_DECLARED = Declared()


def check_share(share: float) -> None:
    if not 0 <= share <= 1:
        raise ValueError(f"a share is between 0 and 1, got {number(share)}")
