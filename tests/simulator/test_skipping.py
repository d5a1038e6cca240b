"""Skipping ahead changes nothing: not a decision, not a time, not a figure."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simulator.worlds import Listed, Log, PerToken, asks

from headway.core.config import UNITS, SchedulerConfig
from headway.core.policies import build_policies
from headway.core.policies.admission import Admission
from headway.simulator.simulate import simulate

BLOCK_SIZE, NUM_BLOCKS, MAX_LEN = 4, 24, 90


@st.composite
def knobs(draw) -> SchedulerConfig:
    unit, prefill = draw(st.sampled_from(UNITS)), draw(st.sampled_from(["mixed", "first"]))
    may_guard = (unit, prefill) == ("step", "mixed")
    return SchedulerConfig(
        max_num_seqs=draw(st.integers(1, 8)),
        max_num_batched_tokens=draw(st.sampled_from([3, 8, 32, 200])),
        block_size=draw(st.sampled_from([1, BLOCK_SIZE])),
        max_model_len=MAX_LEN,
        enable_prefix_caching=draw(st.booleans()),
        kv_policy=draw(st.sampled_from(["on-demand", "reserve", "predict"])),
        max_num_partial_prefills=draw(st.sampled_from([0, 0, 2, 4])),
        target_itl_ms=draw(st.sampled_from([0, 0.002, 0.02])) if may_guard else 0,
        unit=unit,
        prefill=prefill,
        ordering=draw(st.sampled_from(["fcfs", "priority", "sjf", "fair", "edf"])),
        max_tenant_seqs=draw(st.sampled_from([0, 0, 0, 1, 2])),
        victim=draw(st.sampled_from(["auto", "least-lost"])),
        reserve_full_isl=draw(st.booleans()),
        skip_blocked_ms=draw(st.sampled_from([0, 1])),
        watermark=draw(st.sampled_from([0.0, 0.1])),
    )


@st.composite
def requests(draw):
    found = []
    for name in range(draw(st.integers(1, 12))):
        prompt = draw(st.integers(1, 30))
        found.append(
            asks(
                name,
                prompt,
                draw(st.integers(1, 40)),
                at_ns=draw(st.integers(0, 40_000)),
                prefix=min(prompt, draw(st.sampled_from([0, 0, 8, 13]))),
                max_tokens=draw(st.sampled_from([None, 5, 40])),
                priority=draw(st.integers(0, 2)),
                tenant=draw(st.sampled_from(["", "a", "b"])),
                leaves_after_ns=draw(st.sampled_from([None, None, None, 9_000, 40_000])),
                max_queue_ns=draw(st.sampled_from([None, None, 20_000])),
                deadline_ns=draw(st.sampled_from([None, None, 45_000, 70_000])),
            )
        )
    return found


def next_turn(ended, now_ns):
    """Every third goes on: its next prompt begins with all that was said."""
    name = int(ended.request_id)
    if name % 3 or name > 100:
        return []
    said = (*ended.prompt, ended.output)
    follow = asks(name + 100, 5, 7, at_ns=now_ns + 2_000)
    grown = sum(s.num_tokens for s in said) + 5 < MAX_LEN - 10
    return [type(follow)(**{**_fields(follow), "prompt": (*said, *follow.prompt)})] if grown else []


def _fields(request):
    return {name: getattr(request, name) for name in request.__dataclass_fields__}


@dataclass(frozen=True)
class Ahead(Admission):
    """Admission with blocks for a few tokens to come, then one by one."""

    num_ahead: int

    def num_tokens_taken(self, sequence, num_tokens):
        return num_tokens + self.num_ahead

    def num_tokens_free(self, sequence, num_tokens):
        return sequence.num_tokens + self.num_ahead

    def num_tokens_ever(self, request):
        return request.num_prompt_tokens + self.num_ahead


def play(config, asked, *, skip_ahead, num_ahead=None):
    log = Log()
    policies = build_policies(config)
    if num_ahead is not None:
        policies = replace(policies, admission=Ahead(num_ahead))
    blocks = NUM_BLOCKS * BLOCK_SIZE // config.block_size
    result = simulate(
        config,
        Listed(asked, next_turn),
        PerToken(),
        num_blocks=blocks,
        skip_ahead=skip_ahead,
        policies=policies,
        step_listeners=(log,),
    )
    return log, result


def the_records(config, asked):
    """The same ones whether it skips or not."""
    asked = sorted(asked, key=lambda request: int(request.request_id))
    skipped, plain = (play(config, asked, skip_ahead=skip)[0].records for skip in (True, False))
    assert skipped == plain
    return plain


@settings(max_examples=120, deadline=None)
@given(config=knobs(), asked=requests(), num_ahead=st.sampled_from([None, None, 1, 3, 6]))
def test_the_log_and_every_column_are_the_same(config, asked, num_ahead):
    plain, one_by_one = play(config, asked, skip_ahead=False, num_ahead=num_ahead)
    skipped, at_once = play(config, asked, skip_ahead=True, num_ahead=num_ahead)
    assert skipped.records == plain.records
    for name, column in one_by_one.sequences.items():
        assert np.array_equal(at_once.sequences[name], column), name
    for name, column in one_by_one.steps.items():
        assert np.array_equal(at_once.steps[name], column), name
    assert at_once.refused == one_by_one.refused
    # NaN where nobody got a token: compared as text.
    assert repr(at_once.summary()) == repr(one_by_one.summary())


def test_who_is_passed_waits_for_a_slot_once_one_behind_has_taken_it():
    """The step that lets one past it says "blocks", those after it "slots"."""
    config = SchedulerConfig(
        max_num_seqs=2,
        max_model_len=MAX_LEN,
        kv_policy="reserve",
        enable_prefix_caching=False,
        skip_blocked_ms=1,
    )
    asked = [asks(1, 1, 9, max_tokens=9), asks(2, 1, 9), asks(4, 1, 9, max_tokens=9)]
    records = the_records(config, asked)
    assert [record.blocker for record in records[:3]] == ["blocks", "slots", "slots"]


def test_who_takes_the_last_slot_may_leave_others_with_more_than_their_share():
    """Nobody makes way in the step in which it comes in, but in the next somebody does."""
    config = SchedulerConfig(
        max_num_seqs=3,
        max_num_batched_tokens=3,
        block_size=1,
        max_model_len=MAX_LEN,
        enable_prefix_caching=False,
        ordering="fair",
    )
    asked = [asks(name, 1, 1) for name in (0, 1, 2, 5, 6, 7, 8)]
    asked += [asks(3, 1, 10, tenant="a"), asks(9, 1, 2, tenant="a")]
    asked.append(asks(4, 1, 9, tenant="b", at_ns=1))
    records = the_records(config, asked)
    assert [record.index for record in records if record.preempted] == [3, 9]
    assert records[8].blocker == "slots"


def test_who_waited_for_a_prompt_may_put_somebody_out_once_it_is_computed():
    config = SchedulerConfig(
        max_num_seqs=2,
        max_num_batched_tokens=3,
        block_size=1,
        max_model_len=MAX_LEN,
        enable_prefix_caching=False,
        max_num_partial_prefills=2,
        prefill="first",
        ordering="priority",
    )
    asked = [asks(name, 1, 1) for name in (2, 3, 4)]
    asked += [asks(0, 1, 2, priority=1), asks(1, 6, 2, at_ns=1)]
    records = the_records(config, asked)
    assert [record.index for record in records if record.preempted] == [4]
    assert records[3].blocker == "slots"


def test_who_is_barred_waits_for_a_slot_once_those_behind_have_taken_them():
    """The step that gives the last slot to one behind says "tenant", those after it "slots"."""
    config = SchedulerConfig(max_num_seqs=2, max_tenant_seqs=1, max_model_len=MAX_LEN)
    asked = [asks(1, 1, 9, tenant="a"), asks(2, 1, 9, tenant="a"), asks(4, 1, 9, tenant="b")]
    records = the_records(config, asked)
    assert [record.blocker for record in records[:3]] == ["tenant", "slots", "slots"]


@pytest.mark.parametrize("kv_policy", ["on-demand", "reserve", "predict"])
def test_held_blocks_are_counted_as_the_admission_takes_them(kv_policy):
    """A prompt of 3 with 6 ahead takes three blocks of 4, and the fourth for its 13th token."""
    config = SchedulerConfig(block_size=4, max_model_len=MAX_LEN, kv_policy=kv_policy)
    for skip_ahead in (True, False):
        _, result = play(config, [asks(1, 3, 16)], skip_ahead=skip_ahead, num_ahead=6)
        assert result.steps["num_held_blocks"].tolist() == [3] * 10 + [4] * 4 + [5] * 2


def test_most_steps_of_a_long_decode_are_skipped():
    config = SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=64, max_model_len=2048)
    scheduled = []

    class Counting(PerToken):
        def step_ns(self, shape):
            scheduled.append(shape)
            return super().step_ns(shape)

    log = Log()
    asked = [asks(name, 10, 500) for name in range(4)]
    result = simulate(config, Listed(asked), Counting(), num_blocks=400, step_listeners=(log,))
    assert result.summary().num_steps == len(log.records) == len(scheduled) == 500
    assert result.sequences["num_output_tokens"].tolist() == [500] * 4
