"""What is read off a run, against figures worked out by hand or from its step log."""

from __future__ import annotations

import json
import math
from collections import defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.simulator.worlds import Listed, Log, PerToken, asks

from headway.core.config import SchedulerConfig
from headway.simulator.result import PERCENTILES, Spread
from headway.simulator.simulate import simulate

SECOND = 1_000_000_000


class ASecond:
    """Each step takes one."""

    def step_ns(self, shape) -> int:
        return SECOND

    def terms_ns(self, shape) -> dict[str, float]:
        return {"all": float(SECOND)}


def play(requests, *, num_blocks=100, model=None, log=None, skip_ahead=True, **knobs):
    return simulate(
        SchedulerConfig(**{"enable_prefix_caching": False, **knobs}),
        Listed(requests),
        model or ASecond(),
        num_blocks=num_blocks,
        skip_ahead=skip_ahead,
        step_listeners=(log,) if log else (),
    )


# ---- Percentiles ----


@given(st.lists(st.tuples(st.integers(-50, 50), st.integers(0, 7)), max_size=40))
def test_a_weight_is_that_many_values(weighted):
    values = np.array([value for value, _ in weighted], float)
    weights = np.array([weight for _, weight in weighted], np.int64)
    spread = Spread.of(values, weights)
    plain = sorted(value for value, weight in weighted for _ in range(weight))
    if not plain:
        assert all(math.isnan(getattr(spread, name)) for name in spread.__slots__)
        return
    assert spread.mean == pytest.approx(sum(plain) / len(plain))
    assert spread.max == plain[-1]
    for percent in PERCENTILES:
        value = getattr(spread, f"p{percent}")
        # The least of which at least that share of all are no larger.
        assert value in plain
        assert 100 * sum(other <= value for other in plain) >= percent * len(plain)
        assert 100 * sum(other < value for other in plain) < percent * len(plain)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1))
def test_without_weights_each_value_counts_once(values):
    column = np.array(values)
    assert Spread.of(column) == Spread.of(column, np.ones(len(values), np.int64))


# ---- Times between tokens ----


@pytest.mark.parametrize("skip_ahead", [True, False])
@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"num_blocks": 14, "block_size": 4, "reserve_full_isl": False},  # preempts
        {"unit": "request", "max_num_seqs": 3},
        {"prefill": "first", "max_num_batched_tokens": 16},  # stalls whoever decodes
        {"max_num_batched_tokens": 3},  # has not room for all who decode
    ],
)
def test_gaps_are_those_of_the_tokens_in_the_log(knobs, skip_ahead):
    asked = [
        asks(name, 3 + 5 * name % 17, 2 + 7 * name % 23, at_ns=1_700 * name) for name in range(14)
    ]
    log = Log()
    result = play(asked, model=PerToken(), log=log, skip_ahead=skip_ahead, **knobs)
    times = defaultdict(list)
    for record in log.records:
        for sequence_id, num_tokens in record.outputs:
            assert num_tokens == 1
            times[sequence_id].append(record.end_ns)
    gaps = sorted(gap for ends in times.values() for gap in np.diff(ends).tolist())
    values, weights = result.itl_s()
    assert len(gaps) == sum(request.output.num_tokens - 1 for request in asked)
    assert np.sort(np.repeat(values, weights)) == pytest.approx(np.array(gaps) / 1e9)
    firsts = [times[row][0] for row in range(len(asked))]
    assert result.sequences["first_token_ns"].tolist() == firsts


# ---- Summaries worked by hand ----

OUTPUTS = (8, 2, 3, 1, 3, 4, 2, 5)  # of eight requests for four slots, one-token prompts


def eight(unit):
    asked = [asks(name, 1, output) for name, output in enumerate(OUTPUTS)]
    return play(asked, max_num_seqs=4, block_size=1, unit=unit)


def test_summary_of_eight_requests_in_continuous_batches():
    summary = eight("step").summary()
    assert (summary.num_requests, summary.num_refused, summary.num_aborted) == (8, 0, 0)
    assert (summary.duration_s, summary.num_steps, summary.busy_share) == (9.0, 9, 1.0)
    assert summary.output_tokens_per_second == pytest.approx(28 / 9)
    assert summary.prompt_tokens_per_second == pytest.approx(8 / 9)
    assert summary.requests_per_second == pytest.approx(8 / 9)
    assert (summary.peak_batch, summary.mean_batch) == (4, pytest.approx(28 / 9))
    assert (summary.slot_efficiency, summary.live_share) == (1.0, 1.0)
    # First tokens after 1 1 1 1 2 3 4 5, ends after 1 2 3 4 5 6 8 9.
    assert summary.ttft_s == Spread(2.25, 1, 5, 5, 5, 5)
    assert summary.queue_s == Spread(1.25, 0, 4, 4, 4, 4)
    assert summary.e2e_s == Spread(4.75, 4, 9, 9, 9, 9)
    assert summary.itl_s == summary.tpot_s == Spread(1, 1, 1, 1, 1, 1)
    assert len(eight("step").tpot_s()) == 7  # one of them has one token, and no gap
    assert eight("step").itl_s()[1].sum() == 28 - 8


def test_summary_of_eight_requests_in_static_batches():
    summary = eight("request").summary()
    assert (summary.duration_s, summary.num_steps) == (13.0, 13)
    assert summary.output_tokens_per_second == pytest.approx(28 / 13)
    assert (summary.peak_batch, summary.mean_batch) == (4, pytest.approx(28 / 13))
    assert summary.slot_efficiency == pytest.approx(28 / 52)
    assert summary.e2e_s == Spread(10.5, 8, 13, 13, 13, 13)
    assert summary.ttft_s == Spread(5, 1, 9, 9, 9, 9)


def test_blocks_that_are_not_full_and_a_machine_that_is_idle():
    """3 tokens in a block of 4, then 4, then 5 in two; and the same again at 7 s."""
    asked = [asks(name, 3, 3, at_ns=7 * SECOND * name) for name in range(2)]
    summary = play(asked, block_size=4, num_blocks=10).summary()
    assert summary.live_share == 12 / 16
    assert summary.peak_held_share == 2 / 10
    assert (summary.duration_s, summary.num_steps) == (10.0, 6)
    assert summary.busy_share == pytest.approx(6 / 10)
    assert summary.itl_s.max == 1


def test_a_preemption_worked_by_hand():
    """Three blocks for two: the second gives way in step 2 and resumes in step 7, 11 in all.

    It has one token then, and gets the next after 6 s; its prompt of 4 is computed twice, that
    token, which was not computed yet, once.
    """
    asked = [asks(name, 4, 6) for name in range(2)]
    result = play(asked, block_size=4, num_blocks=3)
    summary = result.summary()
    assert summary.num_steps == 11
    assert (summary.num_preemptions, summary.num_preempted_requests) == (1, 1)
    assert (summary.num_recomputed_tokens, summary.num_recomputed_prompt_tokens) == (4, 4)
    assert (summary.refunded_share, summary.preempted_s) == (0.0, 6.0)
    assert result.sequences["preempted_ns"].tolist() == [0, 6 * SECOND]
    assert result.sequences["num_preemptions"].tolist() == [0, 1]
    assert result.sequences["num_lost_tokens"].tolist() == [0, 4]
    assert summary.itl_s == Spread(1.5, 1, 1, 6, 6, 6)
    assert summary.e2e_s.max == summary.duration_s == 11
    assert result.steps["num_preempted"].tolist() == [0, 1] + [0] * 9


def test_shares_of_the_prefix_cache():
    """Two of the second prompt's blocks are in the cache; while both run they are held once."""
    asked = [asks(name, 10, 4, at_ns=name * SECOND, prefix=8) for name in range(2)]
    result = play(asked, block_size=4, enable_prefix_caching=True)
    assert result.sequences["num_cached_tokens"].tolist() == [0, 8]
    assert result.summary().cache_hit_share == 8 / 20
    # Both run in steps 2 to 4: two shared blocks, and one or two of each one's own.
    assert (
        result.steps["num_held_blocks"].tolist() == [3, 4, 4, 5, 4][: len(result.steps["end_ns"])]
    )
    assert result.steps["num_live_tokens"][:3].tolist() == [10, 11 + 10 - 8, 12 + 11 - 8]


def test_who_goes_away_counts_as_aborted_and_not_as_served():
    asked = [asks(1, 4, 10), asks(2, 4, 100, leaves_after_ns=20 * SECOND), asks(3, 9000, 1)]
    summary = play(asked).summary()
    assert (summary.num_requests, summary.num_aborted, summary.num_refused) == (2, 1, 1)
    assert summary.duration_s == 20
    assert summary.requests_per_second == pytest.approx(1 / 20)
    assert summary.output_tokens_per_second == pytest.approx(30 / 20)
    assert summary.e2e_s.max == 10
    assert summary.ttft_s.max == 1


def test_a_summary_is_written_as_json():
    written = eight("step").summary().to_dict()
    assert json.loads(json.dumps(written)) == written
    assert written["ttft_s"]["p90"] == 5


def test_a_static_batch_answers_late_but_its_tokens_came_in_time():
    config = SchedulerConfig(unit="request", max_num_seqs=2, max_model_len=100)
    requests = [asks(0, 10, 2), asks(1, 10, 50)]
    result = simulate(config, Listed(requests), PerToken(attended=0), num_blocks=20)
    assert result.sequences["ended_ns"].tolist() == [result.steps["end_ns"][-1]] * 2
    gap_s = (1000 + 2 * 100) / 1e9, (1000 + 100) / 1e9
    assert result.tpot_s().tolist() == pytest.approx([gap_s[0], (gap_s[0] + 48 * gap_s[1]) / 49])


def test_prompts_that_nobody_computed_are_in_no_rate():
    config = SchedulerConfig(max_num_seqs=1, max_model_len=500)
    requests = [asks(0, 30, 40), asks(1, 300, 5, max_queue_ns=1)]
    result = simulate(config, Listed(requests), PerToken(), num_blocks=50)
    summary = result.summary()
    assert result.sequences["first_token_ns"].tolist()[1] == -1
    assert summary.prompt_tokens_per_second == pytest.approx(30 / summary.duration_s)
