"""Loads at several rates: given ones, or those that lie round the server's limit."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from headway.bench.figures import GOOD_SHARE, Figures
from headway.bench.server_metrics import Histogram
from headway.bench.session import Measured
from headway.simulator.result import Summary

_FARTHEST = 256.0  # from the first rate, up or down
_MOST_LOADS = 16
_FEW_OPEN = 0.25  # on average
_CLOSE = 1.2  # so near are the rates between which the limit is found to lie
KEPT_UP = 0.9
Measure = Callable[[float], "RatePoint"]


@dataclass(frozen=True, slots=True)
class RatePoint:
    """`rate`: requests a second that were offered. `server`: what its own metrics say, if it has
    them; `simulated` where there is a model.
    """

    rate: float
    measured: Measured
    server: Mapping[str, Histogram] = field(default_factory=dict)
    simulated: Summary | None = None

    @property
    def figures(self) -> Figures:
        return self.measured.figures


def is_sustained(figures: Figures) -> bool:
    """No queue grows, and nine requests in ten meet the objectives, or without any are served.

    A short load may meet objectives at a rate that no server sustains, which its queue tells.
    """
    are_good = figures.num_served >= GOOD_SHARE * figures.num_requests
    if figures.num_good is not None:
        are_good = figures.good_share >= GOOD_SHARE
    return are_good and figures.kept_up_share >= KEPT_UP


def best_point(points: Iterable[RatePoint]) -> RatePoint | None:
    """The highest rate that is sustained."""
    good = [point for point in points if is_sustained(point.figures)]
    return max(good, key=lambda point: point.rate, default=None)


def at_rates(rates: Sequence[float], measure: Measure) -> Iterator[RatePoint]:
    """In turn; the last one is what was interrupted."""
    for rate in rates:
        point = measure(rate)
        yield point
        if point.measured.is_interrupted:
            return


def round_the_limit(first: float, measure: Measure) -> Iterator[RatePoint]:
    """Doubles, or halves, until the highest sustained rate lies between two; then closes in."""
    low, high, rate = 0.0, math.inf, first
    for _ in range(_MOST_LOADS):
        point = measure(rate)
        yield point
        if point.measured.is_interrupted:
            return
        if is_sustained(point.figures):
            low = rate
        else:
            high = rate
        rate = _next(low, high)
        if not low and _is_idle(point):
            return
        is_out_of_reach = not first / _FARTHEST <= rate <= first * _FARTHEST
        if high <= low * _CLOSE or is_out_of_reach:
            return


def _is_idle(point: RatePoint) -> bool:
    """Whether requests hardly meet, so that still fewer would fare no better."""
    return point.rate * point.figures.times["e2el"].mean < _FEW_OPEN


def _next(low: float, high: float) -> float:
    if not low:
        return _round(high / 2)
    return _round(low * 2 if math.isinf(high) else math.sqrt(low * high))


def _round(rate: float) -> float:
    """To two digits: rates are for people."""
    return float(f"{rate:.2g}")
