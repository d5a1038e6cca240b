"""A recording decided again: the same scheduler, no difference, whatever happened in it."""

from __future__ import annotations

import itertools

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
from headway.drive.ports import ResetPrefixCache, Submit, Withdraw
from headway.drive.recording import read_recordings
from headway.replay.compare import first_difference
from headway.replay.exact import replay_exactly

COMBINATIONS = list(
    itertools.product(
        ("on-demand", "reserve"),
        ("step", "request"),
        ("mixed", "first"),
        (True, False),
        ("fcfs", "priority"),
    )
)


@st.composite
def configs(draw, combination) -> SchedulerConfig:
    kv_policy, unit, prefill, caching, ordering = combination
    chunked = draw(st.booleans())
    return SchedulerConfig(
        kv_policy=kv_policy,
        unit=unit,
        prefill=prefill,
        enable_prefix_caching=caching,
        ordering=ordering,
        max_num_seqs=draw(st.integers(1, 5)),
        max_num_batched_tokens=draw(st.integers(1, 12)) + (0 if chunked else 30),
        max_model_len=30,
        block_size=draw(st.integers(1, 4)),
        enable_chunked_prefill=chunked,
        victim=draw(st.sampled_from(["auto", "newest", "lowest-priority"])),
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
