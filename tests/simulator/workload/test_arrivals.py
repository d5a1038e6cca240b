"""Arrivals: rates, burstiness, a day's shape, and the same times on every machine."""

from __future__ import annotations

import math
from itertools import chain, islice

import numpy as np
import pytest

from headway.simulator.workload import arrivals as module
from headway.simulator.workload.arrivals import Arrivals, AtOnce, ClosedLoop, Phases, Renewal
from headway.simulator.workload.draws import Purpose, Uniforms
from headway.simulator.workload.waits import ExponentialWait, FixedWait, UniformWait

DAY = Phases(((10, 1), (5, 0), (10, 9)))


def times(arrivals: Arrivals, count: int, seed: int = 7) -> list[int]:
    uniforms = Uniforms(seed, 0, Purpose.ARRIVAL)
    return list(islice(chain.from_iterable(arrivals.times_ns(uniforms)), count))


@pytest.mark.parametrize("variation", [0.0, 0.3, 1.0, 2.5])
def test_rate_and_burstiness(variation: float) -> None:
    gaps = np.diff(times(Renewal(4, variation), 100_000)) / 1e9
    assert gaps.min() >= 0
    assert 1 / gaps.mean() == pytest.approx(4, rel=0.03)
    assert gaps.std() / gaps.mean() == pytest.approx(variation, rel=0.03, abs=1e-9)


def test_poisson_counts_vary_as_much_as_their_mean() -> None:
    counts = np.bincount(np.array(times(Renewal(50), 100_000)) // 10**9)[:-1]
    assert counts.var() / counts.mean() == pytest.approx(1, abs=0.1)


def test_phases_come_in_turn_over_and_over() -> None:
    seconds = np.array(times(DAY, 50_000)) / 1e9
    within = seconds % 25
    assert not ((within > 10.000001) & (within < 14.999999)).any()
    assert (within < 10).mean() == pytest.approx(0.1, abs=0.01)
    assert len(seconds) / seconds[-1] == pytest.approx(DAY.mean_rate, rel=0.02)


def test_constant_phases_are_even() -> None:
    day = Phases(((2, 2), (1, 4)), variation=0)
    assert [round(time / 1e9, 6) for time in times(day, 9)] == [
        *(0, 0.5, 1, 1.5),
        *(2, 2.25, 2.5, 2.75),
        3,
    ]


@pytest.mark.parametrize("arrivals", [Renewal(4), Renewal(4, 2.5), Renewal(4, 0.5), DAY])
def test_blocks_do_not_matter(arrivals: Arrivals, monkeypatch) -> None:
    expected = times(arrivals, 3000)
    monkeypatch.setattr(module, "BLOCK", 7)
    assert times(arrivals, 3000) == expected


@pytest.mark.parametrize(
    ("arrivals", "first", "at_3000"),
    [
        (Renewal(4), [124439180, 165929898, 344098697], 750080399278),
        (Renewal(4, 2.5), [665371522, 665373094, 669690426], 757160684852),
        (Renewal(4, 0.5), [191336498, 309775630, 577542985], 746157210382),
        (Renewal(4, 0), [0, 250000000, 500000000], 749750000000),
        (DAY, [497756720, 663719592, 1376394788], 750321597112),
    ],
)
def test_the_same_times_on_every_machine(arrivals, first, at_3000) -> None:
    drawn = times(arrivals, 3000)
    assert drawn[:3] == first
    assert drawn[-1] == at_3000


@pytest.mark.parametrize("arrivals", [Renewal(1e-8, 0), Phases(((1, 1e-8),), 0)])
def test_arrivals_end_where_nanoseconds_do(arrivals) -> None:
    """One each 1e17 ns: 2^62 lies between the 47th and the 48th."""
    assert times(arrivals, 47) == pytest.approx([i * 10**17 for i in range(47)], rel=1e-12)
    with pytest.raises(ValueError, match="146 years after the start"):
        times(arrivals, 48)


@pytest.mark.parametrize("rate", [1e-300, 1e-308])
def test_a_rate_of_almost_nothing_brings_nobody(rate) -> None:
    with pytest.raises(ValueError, match="146 years after the start"):
        times(Renewal(rate), 1)


def test_no_wait_is_negative_or_endless() -> None:
    longest = ExponentialWait(1e9).at(np.array([0.5, 1 - 2**-53]))
    assert longest.tolist() == [pytest.approx(math.log(2) * 1e18), 2**62]


def test_at_once_and_closed() -> None:
    assert times(AtOnce(), 5000) == [0] * 5000
    assert times(ClosedLoop(3), 10) == [0, 0, 0]


@pytest.mark.parametrize("law", [FixedWait(2), ExponentialWait(2), UniformWait(1, 3)])
def test_waits_have_their_means(law) -> None:
    uniforms = (np.arange(100_000) + 0.5) / 100_000
    assert law.mean() == 2
    assert law.at(uniforms).mean() == pytest.approx(2e9, rel=1e-4)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Renewal(0), "above 0"),
        (lambda: Renewal(float("nan")), "a rate is"),
        (lambda: Renewal(1, -1), "coefficient of variation"),
        (lambda: Phases(()), "at least one phase"),
        (lambda: Phases(((1, 0),)), "at least one phase"),
        (lambda: Phases(((0, 1),)), "longer than 0"),
        (lambda: Phases(((1e300, 1),)), "at most 1000000000"),
        (lambda: ClosedLoop(0), "at least 1 client"),
        (lambda: ClosedLoop(10**10), "at most 10,000,000, got 10000000000"),
        (lambda: FixedWait(-1), "got -1"),
        (lambda: UniformWait(3, 1), "got 3-1"),
        (lambda: ExponentialWait(float("inf")), "a wait is"),
    ],
)
def test_arrivals_that_cannot_be(make, says) -> None:
    with pytest.raises(ValueError, match=says):
        make()
