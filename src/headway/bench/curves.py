"""Throughput against latency as curves: measured, and simulated where there is a model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headway.bench.sweep import RatePoint
from headway.simulator.result import Spread, Summary

LATENCIES = {"ttft": "time to first token", "itl": "time between tokens"}


class Place(NamedTuple):
    latency_s: float
    tokens_per_second: float
    rate: float


@dataclass(frozen=True, slots=True)
class Curve:
    """By rising rate. `is_tail`: of the 99th percentile, not the median."""

    places: tuple[Place, ...]
    is_simulated: bool
    is_tail: bool

    @property
    def name(self) -> str:
        kind = "simulated" if self.is_simulated else "measured"
        return f"{kind}, {'p99' if self.is_tail else 'p50'}"


def curves_of(points: Sequence[RatePoint], latency: str) -> list[Curve]:
    """`latency`: ttft or itl. Curves without a place are left out."""
    ordered = sorted(points, key=lambda point: point.rate)
    curves = [
        Curve(_places(ordered, read(latency, is_tail)), is_simulated, is_tail)
        for is_simulated, read in ((True, _simulated), (False, _measured))
        for is_tail in (False, True)
    ]
    return [curve for curve in curves if curve.places]


_Read = Callable[[RatePoint], tuple[float, float] | None]


def _places(points: Sequence[RatePoint], read: _Read) -> tuple[Place, ...]:
    found = [(read(point), point.rate) for point in points]
    places = [Place(*place, rate) for place, rate in found if place is not None]
    return tuple(place for place in places if place.latency_s > 0)


def _measured(latency: str, is_tail: bool) -> _Read:
    def read(point: RatePoint) -> tuple[float, float] | None:
        times = point.figures.times[latency]
        seconds = times.at(99 if is_tail else 50)
        if math.isnan(seconds):
            return None
        return seconds, point.figures.output_tokens_per_second

    return read


def _simulated(latency: str, is_tail: bool) -> _Read:
    def read(point: RatePoint) -> tuple[float, float] | None:
        if point.simulated is None:
            return None
        spread = _spread(point.simulated, latency)
        seconds = spread.p99 if is_tail else spread.p50
        return None if math.isnan(seconds) else (seconds, point.simulated.output_tokens_per_second)

    return read


def _spread(summary: Summary, latency: str) -> Spread:
    return summary.ttft_s if latency == "ttft" else summary.itl_s
