"""Times, Little's law and what is served, by hand and against the scheduler."""

from __future__ import annotations

import math

import numpy as np
import pytest

from headway.core.config import SchedulerConfig
from headway.insight.plan.capacity import Capacity, batch_at, cost_per_million
from headway.insight.plan.demand import Demand
from headway.insight.plan.planning import mean_context
from headway.insight.plan.prefilling import Prefilling, tokens_of_a_step
from headway.insight.plan.residents import Limits, expected_residents
from headway.insight.plan.timing import Decoding, ridge
from headway.simulator.result import Result
from headway.simulator.simulate import simulate
from headway.simulator.step_time.hardware import hardware_named
from headway.simulator.step_time.models import shape_named
from headway.simulator.step_time.roofline import roofline
from headway.simulator.workload.arrivals import Arrivals, AtOnce, Renewal
from headway.simulator.workload.lengths import fixed, lognormal
from headway.simulator.workload.synthetic import Synthetic
from tests.simulator.worlds import PerToken

PROMPTS, OUTPUTS = lognormal(600, 0.8, 16, 4096), lognormal(120, 0.6, 4, 1024)
BUDGET, NUM_BLOCKS = 4096, 1500
H100 = hardware_named("h100")
MODEL = roofline(shape_named("Llama-3-8B"), H100)
DEMAND = Demand.of_laws(PROMPTS, OUTPUTS)
LIMITS = Limits(
    num_blocks=NUM_BLOCKS, block_size=16, max_num_batched_tokens=BUDGET, max_model_len=8192
)


def capacity() -> Capacity:
    most = expected_residents(DEMAND, LIMITS, "predict").mean
    decoding = Decoding(MODEL, mean_context(DEMAND))
    return Capacity(DEMAND, decoding, Prefilling(decoding, BUDGET), most)


def served(arrivals: Arrivals, count: int) -> Result:
    config = SchedulerConfig(
        max_num_seqs=512, max_num_batched_tokens=BUDGET, max_model_len=8192, kv_policy="predict"
    )
    asked = Synthetic(
        arrivals=arrivals, prompt_tokens=PROMPTS, output_tokens=OUTPUTS, num_requests=count
    )
    return simulate(config, asked, MODEL, num_blocks=NUM_BLOCKS)


def test_the_most_requests_a_second_are_those_of_a_saturated_run():
    ends = np.sort(served(AtOnce(), 700).sequences["ended_ns"])
    rate = 400 / ((ends[550] - ends[150]) / 1e9)
    assert capacity().requests_per_second == pytest.approx(rate, rel=0.12)


@pytest.mark.parametrize("share", [0.3, 0.6])
def test_time_per_token_at_a_rate_is_that_of_a_run(share):
    planned = capacity().load(share * capacity().requests_per_second)
    assert planned is not None
    summary = served(Renewal(planned.requests_per_second), 500).summary()
    assert planned.step_s == pytest.approx(summary.itl_s.mean, rel=0.08)
    assert planned.tokens_per_second == pytest.approx(
        planned.requests_per_second * OUTPUTS.mean(), rel=1e-3
    )


def test_a_rate_without_solution_has_no_load():
    found = capacity()
    assert found.load(1.001 * found.requests_per_second) is None
    assert found.load(0.999 * found.requests_per_second) is not None
    assert [load.share for load in found.loads()] == pytest.approx([0.25, 0.5, 0.7, 0.8, 0.9, 1])


def test_little_s_law_by_hand():
    """t(b) = 1 + b / 100 seconds and 10 tokens: b = 0.5 x 10 x t(b) is 5 / (1 - 0.05)."""
    found = batch_at(0.5, lambda b: 10 * (1 + b / 100) / b if b else math.inf, 100)
    assert found == pytest.approx(5 / 0.95)
    assert batch_at(50, lambda b: 10 * (1 + b / 100) / b if b else math.inf, 100) is None


def test_the_line_and_the_knee_by_hand():
    """1,000 ns a step, 100 a token and 1 for each of 100 attended: t(b) = 1000 + 200 b."""
    decoding = Decoding(PerToken(), 100)
    a, gamma = decoding.line(50)
    assert (a, gamma) == pytest.approx((1000e-9, 200e-9))
    assert decoding.step_s(10) == pytest.approx(3000e-9)
    assert decoding.step_s(10.5) == pytest.approx(3100e-9)
    assert decoding.knee() == 7  # 2,400 ns are twice those of one


def test_a_machine_of_equal_steps_has_no_knee():
    assert Decoding(PerToken(token=0, attended=0), 100).knee() is None


def test_the_ridge_counts_what_is_got():
    """989 TFLOP/s at 0.7 and 3,350 GB/s at 0.8, two FLOP and two bytes a parameter."""
    found = ridge(MODEL, H100, "bf16", context=1)
    assert found.flops_per_byte == pytest.approx(989e12 / 3350e9)
    assert found.batch == pytest.approx(989e12 * 0.7 / (3350e9 * 0.8), rel=0.01)
    assert found.binds
    assert not ridge(MODEL, H100, "bf16", context=4000).binds


@pytest.mark.parametrize("per_step", [0.05, 1.0, 7.0])
def test_tokens_of_a_step_are_a_compound_poisson_sum(per_step):
    unit, chances = tokens_of_a_step(PROMPTS, per_step)
    cells = np.arange(len(chances))
    assert chances[0] == pytest.approx(math.exp(-per_step), rel=1e-3)
    mean = float(chances @ cells) * unit
    squares = PROMPTS.standard_deviation() ** 2 + PROMPTS.mean() ** 2
    assert mean == pytest.approx(per_step * PROMPTS.mean(), rel=0.01)
    variance = float(chances @ (cells * unit) ** 2) - mean**2
    assert variance == pytest.approx(per_step * squares, rel=0.05)


def test_a_prompt_costs_less_where_arithmetic_hides_behind_reading():
    """And no less than nothing, nor more than alone."""
    decoding = Decoding(MODEL, 1000)
    mixed, apart = (Prefilling(decoding, BUDGET, is_mixed) for is_mixed in (True, False))
    few, many, alone = (
        mixed.mean_s(fixed(500), 8, 0.05),
        mixed.mean_s(fixed(500), 128, 0.05),
        apart.mean_s(fixed(500), 8, 0.05),
    )
    assert 0 < many < few < alone


def test_a_price():
    assert cost_per_million(3.6, 1000) == pytest.approx(1.0)
