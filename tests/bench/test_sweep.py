"""The search for the highest sustained rate."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest

from headway.bench.sweep import RatePoint, at_rates, best_point, round_the_limit


def server(limit: float, *, e2e_s: float = 1.0, good_below: float | None = None):
    """Keeps up with `limit` requests a second; meets objectives, if there are any, below."""
    rates: list[float] = []

    def measure(rate: float) -> RatePoint:
        rates.append(rate)
        has_objectives = good_below is not None
        figures: Any = SimpleNamespace(
            num_good=1 if has_objectives else None,
            good_share=1.0 if has_objectives and rate <= good_below else 0.5,
            kept_up_share=min(1.0, limit / rate),
            num_served=100,
            num_requests=100,
            times={"e2el": SimpleNamespace(mean=e2e_s)},
        )
        measured: Any = SimpleNamespace(figures=figures, is_interrupted=len(rates) == 40)
        return RatePoint(rate, measured)

    return measure, rates


@pytest.mark.parametrize("first", [0.3, 9.0, 200.0])
def test_the_limit_is_found_from_below_and_from_above(first: float) -> None:
    measure, rates = server(10.0)
    best = best_point(round_the_limit(first, measure))
    assert best is not None
    assert 8.5 <= best.rate <= 11.2  # kept up with to 90 %
    assert any(best.rate < rate <= 1.2 * best.rate for rate in rates)
    assert len(rates) <= 12


def test_objectives_move_the_limit() -> None:
    measure, _ = server(10.0, good_below=4.0)
    best = best_point(round_the_limit(1.0, measure))
    assert best is not None
    assert 3.3 < best.rate <= 4.0


def test_a_queue_that_grows_is_not_sustained_whatever_the_objectives_say() -> None:
    """As a load too short to feel it: all its requests are good at any rate."""
    measure, _ = server(10.0, good_below=1e9)
    best = best_point(round_the_limit(1.0, measure))
    assert best is not None
    assert best.rate <= 11.2


def test_where_requests_hardly_meet_lower_rates_are_not_tried() -> None:
    measure, rates = server(10.0, e2e_s=0.1, good_below=0.0)
    assert best_point(round_the_limit(8.0, measure)) is None
    assert rates == [8.0, 4.0, 2.0]


def test_a_server_without_a_limit_ends_the_search() -> None:
    measure, rates = server(math.inf)
    list(round_the_limit(1.0, measure))
    assert rates == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 130.0]


def test_given_rates_are_measured_in_turn() -> None:
    measure, rates = server(10.0)
    assert [point.rate for point in at_rates([1.0, 4.0], measure)] == [1.0, 4.0] == rates
