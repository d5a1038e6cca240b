"""Laws of pauses: how long a client thinks, or waits before it goes away."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from headway.simulator.workload.exact_math import Floats, Integers, exponentials
from headway.simulator.workload.lengths import number

SECOND = 1_000_000_000
MAX_SECONDS = 1e9
LATEST_NS = 2**62  # 146 years: what is served after it is still within 63 bits


def _check(low: float, high: float) -> None:
    if not (math.isfinite(high) and 0 <= low <= high <= MAX_SECONDS):
        raise ValueError(
            f"a wait is between 0 and {number(MAX_SECONDS)} seconds, "
            f"got {number(low)}" + ("" if low == high else f"-{number(high)}")
        )


@dataclass(frozen=True, slots=True)
class FixedWait:
    seconds: float

    def __post_init__(self) -> None:
        _check(self.seconds, self.seconds)

    @property
    def text(self) -> str:
        return f"fixed:{number(self.seconds)}"

    def mean(self) -> float:
        return self.seconds

    def at(self, uniforms: Floats) -> Integers:
        """Nanoseconds for uniforms in [0, 1)."""
        return np.full(len(uniforms), nanoseconds(self.seconds))


@dataclass(frozen=True, slots=True)
class ExponentialWait:
    mean_seconds: float

    def __post_init__(self) -> None:
        _check(self.mean_seconds, self.mean_seconds)

    @property
    def text(self) -> str:
        return f"exponential:{number(self.mean_seconds)}"

    def mean(self) -> float:
        return self.mean_seconds

    def at(self, uniforms: Floats) -> Integers:
        """Nanoseconds for uniforms in [0, 1)."""
        return whole_nanoseconds(exponentials(uniforms) * self.mean_seconds)


@dataclass(frozen=True, slots=True)
class UniformWait:
    low: float
    high: float

    def __post_init__(self) -> None:
        _check(self.low, self.high)

    @property
    def text(self) -> str:
        return f"uniform:{number(self.low)}-{number(self.high)}"

    def mean(self) -> float:
        return (self.low + self.high) / 2

    def at(self, uniforms: Floats) -> Integers:
        """Nanoseconds for uniforms in [0, 1)."""
        return whole_nanoseconds(self.low + uniforms * (self.high - self.low))


WaitLaw = FixedWait | ExponentialWait | UniformWait
NO_WAIT = FixedWait(0)


def whole_nanoseconds(seconds: Floats) -> Integers:
    """What is longer than LATEST_NS is as long as that."""
    within = np.minimum(seconds, LATEST_NS / SECOND)
    return np.minimum(np.rint(within * SECOND).astype(np.int64), LATEST_NS)


def nanoseconds(seconds: float) -> int:
    """Raises ValueError above MAX_SECONDS."""
    if not seconds <= MAX_SECONDS:
        raise ValueError(f"a time is at most {MAX_SECONDS:g} seconds, got {seconds:g}")
    return round(seconds * SECOND)
