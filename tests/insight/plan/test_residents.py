"""Expected concurrency is what the scheduler does when somebody always waits."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from headway.core.config import SchedulerConfig
from headway.insight.plan.demand import Demand
from headway.insight.plan.residents import Limits, expected_residents
from headway.simulator.simulate import simulate
from headway.simulator.workload.arrivals import AtOnce
from headway.simulator.workload.forms import parse_declared
from headway.simulator.workload.lengths import LengthLaw, fixed, lognormal, uniform
from headway.simulator.workload.synthetic import Synthetic
from tests.simulator.worlds import PerToken

MAX_MODEL_LEN = 6144


def simulated(
    prompts: LengthLaw, outputs: LengthLaw, limits: Limits, policy: str, declared: str, count: int
) -> npt.NDArray[np.int64]:
    """Sequences that run, in the steps in which the queue is neither new nor nearly empty."""
    config = SchedulerConfig(
        max_num_seqs=limits.max_num_seqs or limits.max_num_batched_tokens,
        max_num_batched_tokens=limits.max_num_batched_tokens,
        max_model_len=limits.max_model_len,
        kv_policy=policy,
        enable_prefix_caching=False,
    )
    asked = Synthetic(
        arrivals=AtOnce(),
        prompt_tokens=prompts,
        output_tokens=outputs,
        num_requests=count,
        max_tokens=parse_declared(declared),
    )
    steps = simulate(config, asked, PerToken(), num_blocks=limits.num_blocks).steps
    last = int(np.nonzero(steps["num_waiting"])[0][-1])
    return steps["num_running"][int(0.3 * last) : last]


def limits(num_blocks: int, budget: int = 8192, slots: int | None = None) -> Limits:
    return Limits(
        num_blocks=num_blocks,
        block_size=16,
        max_num_batched_tokens=budget,
        max_model_len=MAX_MODEL_LEN,
        max_num_seqs=slots,
    )


def planned(
    prompts: LengthLaw, outputs: LengthLaw, told: Limits, policy: str, declared: str = "none"
):
    demand = Demand.of_laws(prompts, outputs, parse_declared(declared))
    return expected_residents(demand.within(MAX_MODEL_LEN, told.num_blocks * 16), told, policy)


@pytest.mark.parametrize("policy", ["on-demand", "reserve", "predict"])
@pytest.mark.parametrize(
    ("sigma", "num_blocks", "count"),
    [(0.3, 250, 400), (0.8, 250, 500), (0.8, 700, 500), (1.2, 600, 600), (0.5, 1600, 600)],
)
def test_p69_lognormal_lengths_within_15_percent(policy, sigma, num_blocks, count):
    prompts, outputs = lognormal(400, sigma, 16, 2000), lognormal(100, sigma, 4, 1000)
    told = limits(num_blocks)
    found = planned(prompts, outputs, told, policy, "2x")
    running = simulated(prompts, outputs, told, policy, "2x", count)
    assert found.mean == pytest.approx(running.mean(), rel=0.15)
    assert found.wall == "blocks"
    is_inside = (running >= found.p05 - 0.5) & (running <= found.p95 + 0.5)
    assert is_inside.mean() > 0.65
    low, high = np.percentile(running, (5, 95))
    assert found.p95 - found.p05 < 2 * (high - low) + 2


def test_tokens_of_a_step_may_be_the_wall():
    prompts, outputs = lognormal(800, 0.5, 16, 4000), lognormal(200, 0.5, 4, 2000)
    told = limits(8000, budget=256)
    found = planned(prompts, outputs, told, "on-demand")
    running = simulated(prompts, outputs, told, "on-demand", "none", 500)
    assert found.wall == "budget"
    assert found.mean == pytest.approx(running.mean(), rel=0.15)


def test_a_cap_is_the_wall_where_it_is_below_what_fits():
    prompts, outputs = uniform(100, 300), uniform(50, 150)
    told = limits(4000, slots=20)
    found = planned(prompts, outputs, told, "on-demand")
    assert (found.wall, found.mean, found.p05, found.p95) == ("slots", 20, 20, 20)


def test_equal_lengths_by_hand():
    """A prompt of two blocks and 16 tokens of output hold 2 blocks in one step, then 3 in 15; and
    one block is free while the next waits for two."""
    told = limits(100)
    found = planned(fixed(32), fixed(16), told, "on-demand")
    assert found.blocks_each == (2 + 15 * 3) / 16
    assert found.steps_each == 16
    assert found.mean == (100 - 1) / found.blocks_each


def test_a_reservation_by_hand():
    """32 and four times 16 tokens are 6 blocks from the first step to the last."""
    found = planned(fixed(32), fixed(16), limits(100), "reserve", "4x")
    assert (found.blocks_each, found.mean) == (6, (100 - 3) / 6)
    undeclared = planned(fixed(32), fixed(16), limits(1000), "reserve")
    assert undeclared.blocks_each == MAX_MODEL_LEN // 16


def test_long_prompts_with_short_outputs_are_not_taken_for_strangers():
    """Pairs of a file keep what belongs together."""
    together = Demand.of_requests([(1000, 10), (10, 1000)])
    mixed = Demand.of_laws(together.prompts, together.outputs)
    told = limits(1000)
    apart, known = (expected_residents(d, told, "on-demand") for d in (mixed, together))
    assert known.mean > 1.5 * apart.mean
