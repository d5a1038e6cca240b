"""Lengths in the form that a plan computes with."""

from __future__ import annotations

import numpy as np
import pytest

from headway.insight.plan.demand import Demand, thinned
from headway.simulator.workload.forms import parse_declared
from headway.simulator.workload.lengths import fixed, lognormal, uniform

PROMPTS, OUTPUTS = lognormal(1000, 1.2, 16, 30_000), lognormal(250, 0.8, 4, 4000)


def test_a_few_hundred_lengths_stand_for_a_law():
    lengths, shares = thinned(PROMPTS, 96)
    assert len(lengths) <= 96
    assert shares.sum() == pytest.approx(1)
    assert lengths @ shares == pytest.approx(PROMPTS.mean(), rel=1e-3)
    squares = PROMPTS.standard_deviation() ** 2 + PROMPTS.mean() ** 2
    assert lengths.astype(float) ** 2 @ shares == pytest.approx(squares, rel=0.01)


def test_a_short_law_stands_for_itself():
    lengths, shares = thinned(uniform(3, 6), 96)
    assert (lengths.tolist(), shares.tolist()) == ([3, 4, 5, 6], [0.25] * 4)


def test_laws_are_drawn_independently():
    demand = Demand.of_laws(PROMPTS, OUTPUTS)
    product = demand.mean(demand.prompt_sizes * demand.output_sizes)
    assert product == pytest.approx(PROMPTS.mean() * OUTPUTS.mean(), rel=2e-3)


def test_requests_of_a_file_keep_what_belongs_together():
    demand = Demand.of_requests([(10, 1), (20, 2), (30, 3)])
    assert demand.mean(demand.prompt_sizes * demand.output_sizes) == pytest.approx(140 / 3)
    assert demand.prompts.mean() == pytest.approx(20)
    assert demand.quantile(demand.sizes, 0.5) == 22


def test_what_ends_an_output_and_what_is_never_served():
    """Of 50, 90 and 120 prompt tokens with 40 of output: whole, cut to 10, and refused."""
    demand = Demand.of_requests([(50, 40), (90, 40), (120, 40)]).within(100, 10_000)
    assert demand.prompt_sizes.tolist() == [50, 90]
    assert demand.output_sizes.tolist() == [40, 10]
    assert (demand.prompts.mean(), demand.outputs.mean()) == (70, 25)
    assert demand.shares.tolist() == [0.5, 0.5]


def test_a_constant_max_tokens_ends_outputs_and_a_multiple_does_not():
    cut = Demand.of_laws(fixed(10), fixed(50), parse_declared("20")).within(1000, 1000)
    assert cut.outputs.mean() == 20
    whole = Demand.of_laws(fixed(10), fixed(50), parse_declared("4x")).within(1000, 1000)
    assert whole.outputs.mean() == 50
    assert whole.reserved(1000).tolist() == [210]
    assert whole.reserved(100).tolist() == [100]


def test_nobody_fits_is_said_with_the_numbers():
    demand = Demand.of_laws(fixed(100), fixed(50))
    with pytest.raises(ValueError, match=r"100 prompt tokens and 50 of output, .* holds 96 tokens"):
        demand.within(8192, 96)


def test_very_many_requests_are_thinned_evenly():
    demand = Demand.of_requests([(1 + n % 1000, 1 + n % 77) for n in range(250_000)])
    assert len(demand.shares) <= 100_000
    assert demand.mean(demand.prompt_sizes) == pytest.approx(500.5, rel=0.01)
    assert np.isclose(demand.shares.sum(), 1)
