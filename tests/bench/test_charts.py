"""Charts of the odd: nothing, one value, zeros, all the same, far apart."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest

from headway.bench.charts import histogram, latency_chart, over_time
from headway.bench.curves import Curve, Place
from headway.bench.figures import Distribution


def check(chart: str) -> None:
    """Well-formed, and every number in it is one."""
    ElementTree.fromstring(chart)
    assert not re.search(r'="[^"]*\b(nan|inf)\b', chart)


@pytest.mark.parametrize(
    "values",
    [
        [1.0],
        [1.0] * 5,
        [0.0, 0.0, 0.1],
        [1e-9, 1e5],
        [0.1, 0.1000001],
        [0.02 * n for n in range(99)],
    ],
)
def test_histograms(values: list[float]) -> None:
    check(histogram(Distribution.of(values), "<time>", (50, 99, 100)))


@pytest.mark.parametrize("values", [[], [0.0], [0.0, 0.0]])
def test_of_no_time_at_all_there_is_no_histogram(values: list[float]) -> None:
    assert histogram(Distribution.of(values), "time", (50,)) == ""


@pytest.mark.parametrize(
    ("due", "took"), [([0.0], [0.0]), ([0.0, 0.0], [1.0, 2.0]), ([0.0, 5.0], [1.0, 1e6])]
)
def test_dots_over_time(due: list[float], took: list[float]) -> None:
    check(over_time(due, took, "time"))


@pytest.mark.parametrize(
    "places",
    [
        [Place(0.1, 0.0, 1.0)],
        [Place(0.1, 3.0, math.inf)],
        [Place(1e-9, 1e-9, 1.0), Place(1e5, 1e9, 2.0)],
        [Place(0.1, 3.0, 1.0), Place(0.1, 3.0, 2.0)],
    ],
)
def test_latencies(places: list[Place]) -> None:
    curves = [
        Curve(tuple(places), simulated, tail)
        for simulated in (False, True)
        for tail in (False, True)
    ]
    check(latency_chart(curves, "time to first token"))
