"""Laws of lengths: what they say of themselves is what they draw."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.simulator.workload import lengths
from headway.simulator.workload.lengths import LengthLaw

UNIFORMS = (np.arange(100_000) + 0.5) / 100_000

small = st.integers(1, 60)
simple_laws = st.one_of(
    small.map(lengths.fixed),
    st.tuples(small, small).map(lambda pair: lengths.uniform(min(pair), max(pair))),
    st.tuples(small, small).map(lambda pair: lengths.log_uniform(min(pair), max(pair))),
    st.tuples(st.floats(1, 300), st.floats(1, 30)).map(lambda pair: lengths.spread(*pair)),
    st.tuples(st.floats(1, 200), st.floats(0.1, 2)).map(
        lambda pair: lengths.lognormal(*pair, 2, 300)
    ),
    st.lists(small, min_size=1, max_size=8).map(lengths.empirical),
)
laws = st.one_of(
    simple_laws,
    st.lists(st.tuples(st.floats(0.1, 9), simple_laws), min_size=1, max_size=3).map(
        lengths.mixture
    ),
)


def test_the_longest_of_a_static_batch() -> None:
    """The lessons' output lengths: mean 249.3, longest of 4, 16 and 64."""
    law = lengths.lognormal(250, 0.8, 8, 2048)
    assert law.mean() == pytest.approx(249.3, abs=0.05)
    assert [round(law.expected_max(count)) for count in (4, 16, 64)] == [485, 814, 1225]


def test_a_spread_has_the_extremes_of_the_lesson() -> None:
    law = lengths.spread(256, 16)
    assert law.mean() == pytest.approx(256, abs=0.01)
    assert (law.values[0], law.values[-1]) == (47, 757)
    square = math.fsum(law.values**2 * law.probabilities()) / law.mean() ** 2
    assert square == pytest.approx(1.57, abs=0.01)
    assert lengths.spread(256, 1).values.tolist() == [256]


@given(laws)
def test_draws_have_the_moments_that_the_law_states(law: LengthLaw) -> None:
    drawn = law.at(UNIFORMS)
    assert drawn.mean() == pytest.approx(law.mean(), rel=1e-3)
    assert drawn.std() == pytest.approx(law.standard_deviation(), rel=1e-2, abs=1e-2)
    assert set(np.unique(drawn)) <= set(law.values)


@given(laws, st.integers(1, 30))
def test_the_longest_lies_between_the_mean_and_the_maximum(law: LengthLaw, count: int) -> None:
    longest = law.expected_max(count)
    assert law.mean() * (1 - 1e-12) <= longest <= law.values[-1] * (1 + 1e-12)
    assert longest <= law.expected_max(count + 1) * (1 + 1e-12)
    assert law.expected_max(1) == pytest.approx(law.mean())


@given(laws)
def test_tables_are_distributions(law: LengthLaw) -> None:
    assert (np.diff(law.values) > 0).all()
    assert (law.probabilities() > 0).all()
    assert law.cumulative[-1] == 1
    assert law.values[0] >= 1
    assert law.at(np.array([0.0, 1 - 2**-53]))[1] == law.values[-1]


@given(laws, st.floats(0, 1))
def test_quantiles(law: LengthLaw, share: float) -> None:
    value = law.quantile(share)
    at_most = law.cumulative[law.values <= value]
    assert at_most[-1] >= share
    assert len(at_most) == 1 or at_most[-2] < share


def test_lognormal_is_rounded_then_clipped() -> None:
    law = lengths.lognormal(250, 0.8, 8, 2048)
    normal = NormalDist(math.log(250) - 0.32, 0.8)
    grid = UNIFORMS[::97]
    by_hand = [min(max(round(math.exp(normal.inv_cdf(u))), 8), 2048) for u in grid]
    assert law.at(grid).tolist() == by_hand


def test_empirical_and_histogram_agree() -> None:
    assert lengths.empirical([5, 3, 5]) == lengths.histogram({3: 1, 5: 2})
    assert lengths.empirical([5, 3, 5]).mean() == pytest.approx(13 / 3)


def test_a_mixture_weighs_its_parts() -> None:
    law = lengths.mixture([(3, lengths.fixed(10)), (1, lengths.uniform(1, 19))])
    assert law.mean() == pytest.approx(10)
    assert law.cumulative[law.values.tolist().index(9)] == pytest.approx(9 / 19 / 4)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: lengths.fixed(0), "between 1 and"),
        (lambda: lengths.fixed(2**25), "between 1 and"),
        (lambda: lengths.uniform(9, 3), "got 9-3"),
        (lambda: lengths.uniform(0, 3), "got 0-3"),
        (lambda: lengths.log_uniform(0, 3), "got 0-3"),
        (lambda: lengths.spread(100, 0.5), "ratio of at least 1"),
        (lambda: lengths.lognormal(100, 0), "above 0"),
        (lambda: lengths.lognormal(-1, 1), "above 0"),
        (lambda: lengths.empirical([]), "weights above 0"),
        (lambda: lengths.histogram({3: -1}), "weights above 0"),
        (lambda: lengths.histogram({3: math.inf}), "weights above 0"),
        (lambda: lengths.mixture([]), "weights above 0"),
        (lambda: lengths.mixture([(1, lengths.mixture([(1, lengths.fixed(1))]))]), "multiply"),
    ],
)
def test_laws_that_cannot_be(make, says) -> None:
    with pytest.raises(ValueError, match=says):
        make()
