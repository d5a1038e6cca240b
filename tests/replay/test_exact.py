"""A recording decided again: the same scheduler, no difference, whatever happened in it."""

from __future__ import annotations

import itertools
from dataclasses import fields, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recorded_run import STEP_NS, STOP_TOKEN_ID, Steps, record_run

from headway.core.config import SchedulerConfig
from headway.core.request import (
    FinishReason,
    RepetitionDetection,
    Request,
    SamplingParams,
    TimeLimits,
)
from headway.core.scheduler import Scheduler
from headway.drive.ports import ResetPrefixCache, Submit, Withdraw
from headway.drive.record import StepRecord
from headway.drive.recording import EndedSequence, Recording, RefusedRequest, read_recordings
from headway.replay.compare import first_difference
from headway.replay.exact import replay_exactly
from headway.replay.requests import recorded_config

COMBINATIONS = list(
    itertools.product(
        ("on-demand", "reserve", "predict"),
        ("step", "request"),
        ("mixed", "first"),
        (True, False),
        ("fcfs", "priority", "sjf", "fair", "edf"),
    )
)


@st.composite
def configs(draw, combination) -> SchedulerConfig:
    kv_policy, unit, prefill, caching, ordering = combination
    chunked = draw(st.booleans())
    may_guard = chunked and (unit, prefill) == ("step", "mixed")
    return SchedulerConfig(
        kv_policy=kv_policy,
        unit=unit,
        prefill=prefill,
        enable_prefix_caching=caching,
        ordering=ordering,
        tenant_weights="a=2,b=3" if ordering == "fair" else "",
        max_tenant_seqs=draw(st.sampled_from([0, 0, 2])),
        max_num_seqs=draw(st.integers(1, 5)),
        max_num_batched_tokens=draw(st.integers(1, 12)) + (0 if chunked else 30),
        max_model_len=30,
        block_size=draw(st.integers(1, 4)),
        enable_chunked_prefill=chunked,
        max_num_partial_prefills=draw(st.sampled_from([0, 3])) if chunked else 0,
        target_itl_ms=draw(st.sampled_from([0, STEP_NS / 1e6])) if may_guard else 0,
        victim=draw(st.sampled_from(["auto", "newest", "least-lost", "lowest-priority"])),
        reserve_full_isl=draw(st.booleans()),
        watermark=draw(st.sampled_from([0.0, 0.2])),
    )


spans = st.sampled_from([None, None, None, 0, 2 * STEP_NS, 9 * STEP_NS])


@st.composite
def requests(draw, arrival_ns: int) -> Request:
    max_tokens = draw(st.sampled_from([None, 1, 3, 9]))
    sampling = SamplingParams(
        n=draw(st.integers(1, 2)),
        max_tokens=max_tokens,
        min_tokens=draw(st.integers(0, max_tokens or 3)),
        prompt_logprobs=draw(st.sampled_from([None, None, 1])),
        repetition_detection=draw(
            st.sampled_from([None, None, RepetitionDetection(max_pattern_size=2)])
        ),
    )
    deadline = draw(spans)
    return Request(
        request_id=f"r{draw(st.integers(0, 9))}",
        prompt_token_ids=tuple(draw(st.lists(st.integers(1, 2), max_size=33))),
        tenant=draw(st.sampled_from(["", "a", "b"])),
        sampling=sampling,
        stop_token_ids=frozenset(draw(st.sets(st.just(STOP_TOKEN_ID)))),
        seed=draw(st.integers(0, 1)),
        arrival_ns=arrival_ns,
        priority=draw(st.integers(0, 1)),
        adapter=draw(st.sampled_from(["", "", "x"])),
        cache_salt=draw(st.sampled_from(["", "", "s"])),
        forced_token_ids=tuple(draw(st.sampled_from([(), (), (1, STOP_TOKEN_ID, 2, 3)]))),
        limits=TimeLimits(
            max_queue_ns=draw(spans),
            max_run_ns=draw(spans),
            deadline_ns=None if deadline is None else arrival_ns + deadline,
        ),
    )


@st.composite
def scripts(draw):
    script, now_ns = [], 0
    for _ in range(draw(st.integers(1, 14))):
        now_ns += draw(st.sampled_from([0, 0, 300, STEP_NS, 7 * STEP_NS]))
        kind = draw(st.sampled_from(["request", "request", "request", "withdraw", "reset"]))
        if kind == "request":
            script.append((now_ns, Submit(draw(requests(now_ns)))))
        elif kind == "withdraw":
            index = draw(st.sampled_from([None, 0, 1]))
            reason = draw(st.sampled_from([FinishReason.ABORT, FinishReason.STOP]))
            name = f"r{draw(st.integers(0, 9))}"
            script.append((now_ns, Withdraw(name, index, reason)))
        else:
            script.append((now_ns, ResetPrefixCache()))
    return script


@pytest.mark.parametrize("combination", COMBINATIONS, ids=str)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_no_decision_differs_wherever_the_recording_is_cut_off(combination, data):
    config = data.draw(configs(combination))
    fails_in = data.draw(st.sets(st.integers(0, 30), max_size=2))
    run = record_run(config, data.draw(st.integers(2, 12)), data.draw(scripts()), fails_in=fails_in)
    steps = Steps()
    result = replay_exactly(run.recording, step_listeners=[steps])
    assert result.difference is None
    assert result.num_steps == len(run.steps) == len(steps.records)
    timed = [(record.index, record.start_ns) for record in steps.records]
    assert timed == [(record.index, record.start_ns) for record in run.steps]
    if not fails_in:
        assert first_difference(run.steps, steps.records) is None
    cut = data.draw(st.integers(1, len(run.lines)))
    [beginning] = read_recordings(run.lines[:cut])
    assert replay_exactly(beginning).difference is None


def ask(name: str, prompt: int = 6, **fields) -> Submit:
    sampling = SamplingParams(max_tokens=fields.pop("max_tokens", 6))
    ids = tuple(range(10, 10 + prompt))
    return Submit(Request(request_id=name, prompt_token_ids=ids, sampling=sampling, **fields))


def test_p74_a_replay_gives_all_twenty_tokens_whatever_max_tokens_says_by_default():
    assert SamplingParams().max_tokens == 16
    stops = Withdraw("stopped", reason=FinishReason.STOP)
    script = [
        (0, ask("limited", max_tokens=20)),
        (0, ask("forced", max_tokens=None, forced_token_ids=tuple(range(20)))),
        (0, ask("stopped", max_tokens=None)),
        (20 * STEP_NS, stops),
    ]
    run = record_run(SchedulerConfig(max_model_len=60), 40, script)
    steps = Steps()
    assert replay_exactly(run.recording, step_listeners=[steps]).difference is None
    given = [0, 0, 0]
    for record in steps.records:
        for sequence_id, num_tokens in record.outputs:
            given[sequence_id] += num_tokens
    assert given == [20, 20, 20]


def test_how_a_member_of_a_static_batch_ended_that_a_withdrawal_drained():
    script = [
        (0, ask("full", max_tokens=2)),
        (0, ask("left", max_tokens=None)),
        (9 * STEP_NS, Withdraw("left")),
        (9 * STEP_NS, ask("next", 3)),
    ]
    config = SchedulerConfig(unit="request", max_model_len=60)
    recording = record_run(config, 40, script).recording
    ends = {e.sequence_id: e.reason for e in recording.entries if isinstance(e, EndedSequence)}
    assert (ends[0], ends[1]) == ("length", "abort")
    assert replay_exactly(recording).difference is None


def test_a_scheduler_that_decides_otherwise_is_told_with_both_decisions():
    config = SchedulerConfig(block_size=4, max_num_seqs=2)
    run = record_run(config, 40, [(0, ask("a")), (0, ask("b", 9)), (0, ask("c"))])

    def three_slots(config: SchedulerConfig, num_blocks: int) -> Scheduler:
        return Scheduler(replace(config, max_num_seqs=3), num_blocks)

    result = replay_exactly(run.recording, make_scheduler=three_slots)
    assert result.num_steps == 0
    assert result.difference == (
        "step 0 differs: chunks nothing in the first and (2, 4, 2) in the second; "
        "admitted nothing in the first and (2, 4) in the second; "
        "outputs nothing in the first and (2, 1) in the second; "
        "blocker 'slots' in the first and None in the second; "
        "blocked_sequence_id 2 in the first and None in the second"
    )


def test_an_answer_at_the_door_is_compared_too():
    run = record_run(SchedulerConfig(max_model_len=50), 40, [(0, ask("a")), (0, ask("long", 50))])

    def lenient(config: SchedulerConfig, num_blocks: int) -> Scheduler:
        return Scheduler(replace(config, max_model_len=60, max_num_seqs=1), num_blocks)

    entries = [e for e in run.recording.entries if not isinstance(e, RefusedRequest)]
    recording = Recording(run.recording.header, entries)
    assert "RefusedRequest" in replay_exactly(recording).difference
    assert "blocker" in replay_exactly(run.recording, make_scheduler=lenient).difference


def test_a_step_with_nothing_to_do_is_a_difference():
    run = record_run(SchedulerConfig(), 40, [(0, ask("a"))])
    recording = run.recording
    first = next(e for e in recording.entries if isinstance(e, StepRecord))
    later = replace(first, index=len(run.steps), start_ns=10**9, end_ns=10**9)
    recording.entries.append(later)
    result = replay_exactly(recording)
    assert result.num_steps == len(run.steps)
    assert result.difference == f"step {later.index} was recorded, but there is nothing to do in it"


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("n", 0, "request 'a': n must be at least 1, got 0"),
        ("prompt_blocks", ("x",) * 5, "'a': a prompt of 6 tokens has 0 full blocks of 16, the"),
    ],
)
def test_an_arrival_that_cannot_be_is_a_sentence(field, value, sentence):
    recording = record_run(SchedulerConfig(), 40, [(0, ask("a"))]).recording
    recording.entries[0] = replace(recording.entries[0], **{field: value})
    with pytest.raises(ValueError, match=sentence):
        replay_exactly(recording)


# Every setting, at another value than the usual one.
UNUSUAL = (
    SchedulerConfig(
        max_num_seqs=3,
        max_num_batched_tokens=50,
        max_model_len=40,
        block_size=8,
        enable_prefix_caching=False,
        enable_chunked_prefill=False,
        prefill="first",
        unit="request",
        watermark=0.25,
        reserve_full_isl=False,
        max_tenant_seqs=2,
        skip_blocked_ms=5,
        ordering="sjf",
        ageing_tokens_per_s=0,
    ),
    SchedulerConfig(long_prefill_token_threshold=4, max_num_partial_prefills=3, target_itl_ms=0.5),
    SchedulerConfig(ordering="fair", tenant_weights="a=2", victim="newest"),
    SchedulerConfig(kv_policy="predict", kv_risk=0.5),
)


def test_every_setting_comes_back_from_a_recording():
    usual = SchedulerConfig()
    names = {field.name for field in fields(SchedulerConfig)} - {"prefix_salt"}  # not recorded
    assert names == {n for n in names for c in UNUSUAL if getattr(c, n) != getattr(usual, n)}
    for config in UNUSUAL:
        recording = record_run(config, 40, [(0, ask("a"))]).recording
        assert recorded_config(recording.header) == config
        assert replay_exactly(recording).difference is None


def test_a_risk_that_nobody_took_is_not_read():
    """It may have been the usual one when it was recorded."""
    header = record_run(SchedulerConfig(), 40, [(0, ask("a"))]).recording.header
    recorded = replace(header, scheduler={**header.scheduler, "kv_risk": 0.1})
    assert recorded_config(recorded) == SchedulerConfig()


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"max_num_slots": 3}, "header: scheduler.max_num_slots is no setting of this scheduler"),
        ({"max_num_seqs": 0}, "max_num_seqs must be an integer of at least 1, got 0"),
        ({"ageing_tokens_per_s": "7"}, "ageing_tokens_per_s must be of type int or null, got '7'"),
        ({"watermark": None}, "scheduler.watermark must be of type float, got None"),
    ],
)
def test_a_header_without_a_scheduler_is_a_sentence(settings, sentence):
    recording = record_run(SchedulerConfig(), 40, [(0, ask("a"))]).recording
    recording.header = replace(recording.header, scheduler=settings)
    with pytest.raises(ValueError, match=sentence):
        replay_exactly(recording)
