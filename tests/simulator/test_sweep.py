"""Grids, seeds, and points that decided the same."""

from __future__ import annotations

import math

import pytest
from tests.simulator.worlds import Listed, PerToken, asks

from headway.core.config import SchedulerConfig
from headway.simulator.config import Setup
from headway.simulator.sweep import grid, mean_and_deviation, same_points, sweep


def test_the_last_axis_moves_fastest():
    assert list(grid({"a": [1, 2], "b": "xy"})) == [
        {"a": 1, "b": "x"},
        {"a": 1, "b": "y"},
        {"a": 2, "b": "x"},
        {"a": 2, "b": "y"},
    ]


def setup_of(values, number: int) -> Setup:
    asked = [asks(name, 16 + number, 12) for name in range(6)]
    return Setup(
        config=SchedulerConfig(max_num_seqs=values["slots"], block_size=4),
        num_blocks=100,
        model=PerToken(),
        workload=Listed(asked),
    )


def test_each_point_has_a_summary_for_each_seed_and_equal_ones_are_found():
    seen = []
    points = list(
        sweep(
            {"slots": [2, 6, 12]},
            setup_of,
            num_seeds=2,
            on_result=lambda values, result: seen.append(values["slots"]),
        )
    )
    assert seen == [2, 2, 6, 6, 12, 12]
    assert [point.summaries[0].peak_batch for point in points] == [2, 6, 6]
    assert [[p.values["slots"] for p in group] for group in same_points(points)] == [[6, 12]]
    first, second = (summary.duration_s for summary in points[0].summaries)
    mean, deviation = points[0].figure(lambda summary: summary.duration_s)
    assert mean == pytest.approx((first + second) / 2)
    assert deviation == pytest.approx(abs(first - second) / math.sqrt(2))


def test_what_is_no_number_is_left_out_of_means():
    assert mean_and_deviation([2.0, math.nan]) == (2.0, 0.0)
    assert all(map(math.isnan, mean_and_deviation([math.nan])))
