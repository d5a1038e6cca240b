"""What continuous batching is worth, against both articles' figures."""

from __future__ import annotations

import numpy as np
import pytest
from tests.lessons.clocks import CLOCK_1
from tests.lessons.drain import BUDGET, OUTPUTS, PROMPTS, UNIFORM
from tests.lessons.poisson import OUTPUT_LAW
from tests.lessons.published import published
from tests.simulator.worlds import PerToken

from headway.simulator.batching import (
    Lengths,
    batching_curve,
    run_unit,
    slot_share,
)
from headway.simulator.workload.lengths import empirical

WORKED = [Lengths(1, output) for output in (8, 2, 3, 1, 3, 4, 2, 5)]
TICKING = PerToken(step=1, token=0, attended=0)
SHARES = {4: "slot utilisation B=4", 16: "slot utilisation B=16", 64: "slot utilisation B=64"}


def in_steps(unit: str) -> tuple[int, list[int], float]:
    """Steps, when each was told of its end, and the share of slots that made a token."""
    result = run_unit(unit, WORKED, 4, TICKING, token_budget=64)
    steps, ends = len(result.steps["end_ns"]), result.sequences["ended_ns"].tolist()
    return steps, ends, sum(one.output for one in WORKED) / (4 * steps)


def test_the_worked_example():
    steps, ends, share = in_steps("request")
    assert (steps, ends) == (published(2, "worked example: static steps"), [8] * 4 + [13] * 4)
    assert round(100 * share) == published(2, "worked example: static utilisation, percent")
    steps, ends, share = in_steps("step")
    assert steps == published(2, "worked example: continuous steps")
    assert ends == published(2, "worked example: continuous completions")
    assert round(100 * share) == published(2, "worked example: continuous utilisation, percent")


@pytest.mark.parametrize("batch_size", SHARES)
def test_the_closed_form_gives_the_published_shares_and_longest_of_a_batch(batch_size):
    """The article's is one finite sample; its tolerances are those of the lessons."""
    share = slot_share(OUTPUT_LAW, batch_size)
    assert share == pytest.approx(published(2, SHARES[batch_size]), abs=0.01)
    longest = OUTPUT_LAW.mean() / share
    assert longest == pytest.approx(published(2, f"E[max output] B={batch_size}"), rel=0.02)


def test_equal_outputs_gain_the_published_percent_or_two():
    """Article 1 at a spread of 1x, 64 slots, nothing preempted: 3,301 to 3,356 tokens a second."""
    requests = [Lengths(*pair) for pair in zip(PROMPTS, UNIFORM, strict=True)]
    rates = {}
    for unit in ("request", "step"):
        summary = run_unit(unit, requests, 64, CLOCK_1, BUDGET).summary()
        assert summary.num_preemptions == 0
        rates[unit] = summary.output_tokens_per_second
    for unit, name in (("request", "uniform_demand_request"), ("step", "uniform_demand_pass")):
        assert rates[unit] == pytest.approx(published(1, f"throughput {name}"), rel=0.01)
    gain = published(1, "gain of per-pass at spread 1x, on demand, percent")
    assert 100 * (rates["step"] / rates["request"] - 1) == pytest.approx(gain, abs=0.4)


def test_the_curve_is_of_the_file_and_gains_by_its_spread():
    sizes = (1, 8)
    gains = {}
    for name, outputs in (("even", UNIFORM), ("wide", OUTPUTS)):
        lengths = np.array(PROMPTS), np.array(outputs)
        points = list(batching_curve(*lengths, CLOCK_1, token_budget=BUDGET, batch_sizes=sizes))
        assert [point.batch_size for point in points] == list(sizes)
        gains[name] = np.array([point.gain for point in points])
    assert gains["even"] == pytest.approx([1, 1], abs=0.02)
    assert gains["wide"][0] == pytest.approx(1, abs=0.01)
    assert gains["wide"][1] > 1.7


def test_with_steps_that_all_take_the_same_the_gain_is_that_of_the_slots():
    outputs = np.array(OUTPUTS)
    (point,) = batching_curve(
        np.ones_like(outputs), outputs, TICKING, token_budget=4096, batch_sizes=(32,)
    )
    assert point.slot_share == slot_share(empirical(OUTPUTS), 32)
    assert point.gain == pytest.approx(point.slot_gain, rel=0.1)


def test_the_curve_ends_where_two_batches_are_too_much_work(monkeypatch):
    monkeypatch.setattr("headway.simulator.batching._MOST_PROMPT_TOKENS", 3000)
    lengths = np.array([1000]), np.array([2])
    points = batching_curve(*lengths, TICKING, token_budget=4096, batch_sizes=(1, 64))
    assert [point.batch_size for point in points] == [1]
    endless = batching_curve(np.array([1]), np.array([2**24]), TICKING, token_budget=64)
    assert not list(endless)
