"""A recording as a workload: what came, when, how long it was, and what was equal in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random

import pytest
from recorded_run import START_NS, STEP_NS, STOP_TOKEN_ID, Steps, record_run

from headway.core.config import SchedulerConfig
from headway.core.limits import MAX_TOKEN_ID
from headway.core.request import FinishReason, Request, SamplingParams, TimeLimits
from headway.drive.ports import Submit, Withdraw
from headway.drive.recording import EndedSequence, FilledBlocks, QueuedSequence, read_recordings
from headway.replay.compare import first_difference
from headway.replay.tokens import STOP_TOKEN
from headway.replay.traffic import RecordedTraffic
from headway.simulator.script import END_TOKEN
from headway.simulator.simulate import simulate
from headway.simulator.step_time.base import StepShape

CONFIG = SchedulerConfig(block_size=4, max_num_seqs=4, max_model_len=60)


class ByTokens:
    """As long as the toy executor of the recorded runs."""

    def step_ns(self, shape: StepShape) -> int:
        return STEP_NS + shape.num_tokens

    def terms_ns(self, shape: StepShape) -> Mapping[str, float]:
        return {"tokens": float(self.step_ns(shape))}


def ask(name: str, prompt: int = 6, *, at_ns: int = 0, shift: int = 0, **fields) -> tuple:
    sampling = {"max_tokens": 6, "n": 1} | {
        key: fields.pop(key) for key in ("max_tokens", "n", "min_tokens") if key in fields
    }
    ids = tuple(range(10 + shift, 10 + shift + prompt))
    request = Request(
        request_id=name,
        prompt_token_ids=ids,
        sampling=SamplingParams(**sampling),
        arrival_ns=START_NS + at_ns,
        **fields,
    )
    return at_ns, Submit(request)


def traffic_of(script, num_blocks: int = 40, **options) -> RecordedTraffic:
    recording = record_run(CONFIG, num_blocks, script).recording
    return RecordedTraffic(recording.header, recording.entries, **options)


def test_the_end_of_an_output_is_the_same_token_here_and_in_the_simulator():
    assert STOP_TOKEN == END_TOKEN == MAX_TOKEN_ID  # none is above it


def test_times_run_from_the_first_arrival_and_lengths_are_as_they_were():
    script = [
        ask("a", 5, at_ns=100, stop_token_ids=frozenset({STOP_TOKEN_ID}), max_tokens=40),
        ask("b", 9, at_ns=900, limits=TimeLimits(deadline_ns=START_NS + 10**6), priority=3),
    ]
    run = record_run(CONFIG, 40, script)
    traffic = RecordedTraffic(run.recording.header, run.recording.entries)
    first, second = traffic.scripts()
    assert [s.request.arrival_ns for s in (first, second)] == [0, 800]
    assert second.request.limits.deadline_ns == 10**6 - 100
    assert (second.request.priority, second.request.num_prompt_tokens) == (3, 9)
    assert first.num_output_tokens(0) == sum(n for r in run.steps for s, n in r.outputs if s == 0)
    assert first.num_output_tokens(0) < 40
    assert second.request.max_output_tokens == 6  # which ends it, as it did
    assert (traffic.num_cut_off, traffic.num_left_out, len(traffic)) == (0, 0, 2)


def test_a_stop_string_is_an_end_and_a_client_that_left_leaves_as_late_as_it_did():
    script = [
        ask("stopped", max_tokens=50),
        ask("gone", max_tokens=50, at_ns=200),
        (4 * STEP_NS, Withdraw("stopped", 0, FinishReason.STOP)),
        (6 * STEP_NS, Withdraw("gone")),
    ]
    stopped, gone = traffic_of(script).scripts()
    assert stopped.leaves_ns is None
    assert 1 <= stopped.num_output_tokens(0) <= 5
    assert 6 * STEP_NS <= gone.leaves_ns < 8 * STEP_NS
    assert gone.num_output_tokens(0) > CONFIG.max_model_len


def conversations(seed: int) -> list[tuple]:
    """Turns that go on from what was said, prompts that begin alike, choices, ends of all kinds."""
    random = Random(seed)
    script, now_ns = [], 0
    for number in range(30):
        now_ns += random.randrange(3 * STEP_NS)
        prompt = [random.randrange(3)] * random.choice([3, 8, 12]) + [number] * random.randrange(
            1, 9
        )
        said = [100 + number] * random.randrange(1, 12)
        later = now_ns + random.randrange(20, 40) * STEP_NS
        for at_ns, name, tokens, forced in (
            (now_ns, f"{number}", prompt, said),
            (later, f"{number}, next", [*prompt, *said, 1], ()),
        ):
            request = Request(
                request_id=name,
                prompt_token_ids=tuple(tokens),
                sampling=SamplingParams(max_tokens=random.randrange(1, 14), n=1 + number % 2),
                stop_token_ids=frozenset({STOP_TOKEN_ID}),
                forced_token_ids=tuple(forced),
                priority=random.randrange(2),
                arrival_ns=START_NS + at_ns,
            )
            script.append((at_ns, Submit(request)))
    first_ns = min(at_ns for at_ns, _ in script)
    return [(at_ns - first_ns, command) for at_ns, command in script]


@pytest.mark.parametrize("unit", ["step", "request"])
@pytest.mark.parametrize("ordering", ["fcfs", "priority", "sjf", "edf"])
@pytest.mark.parametrize("kv_policy", ["on-demand", "reserve", "predict"])
def test_under_the_recorded_settings_and_times_the_decisions_are_the_recorded_ones(
    unit, ordering, kv_policy
):
    config = replace(
        CONFIG, unit=unit, ordering=ordering, kv_policy=kv_policy, max_num_seqs=8, max_model_len=40
    )
    run = record_run(config, 16, conversations(seed=1))
    traffic = RecordedTraffic(run.recording.header, run.recording.entries)
    steps = Steps()
    simulate(config, traffic, ByTokens(), num_blocks=16, step_listeners=[steps])
    assert first_difference(run.steps, steps.records) is None
    assert sum(len(record.preempted) for record in run.steps) > 2 or kv_policy != "on-demand"
    assert sum(entry.num_cached_tokens for r in run.steps for entry in r.admitted) > 100


def test_other_settings_serve_the_same_requests():
    run = record_run(CONFIG, 22, conversations(seed=2))
    traffic = RecordedTraffic(run.recording.header, run.recording.entries, block_size=8)
    steps = Steps()
    config = replace(CONFIG, block_size=8, max_num_seqs=2)
    simulate(config, traffic, ByTokens(), num_blocks=11, step_listeners=[steps])
    said = [sum(n for r in records for _, n in r.outputs) for records in (run.steps, steps.records)]
    assert said[0] == said[1]
    assert sum(entry.num_cached_tokens for r in steps.records for entry in r.admitted) > 50


def test_what_the_recording_cut_short_is_counted():
    run = record_run(
        CONFIG, 40, [ask("a", max_tokens=9), ask("b", n=2, max_tokens=9)], fails_in=[4]
    )
    failed = RecordedTraffic(run.recording.header, run.recording.entries)
    assert failed.num_cut_off == 3
    assert [s.num_output_tokens(0) for s in failed.scripts()] == [4, 4]
    steps = [i for i, line in enumerate(run.lines) if '"kind":"step"' in line]
    [killed] = read_recordings(run.lines[: steps[2]])
    traffic = RecordedTraffic(killed.header, killed.entries)
    assert traffic.num_cut_off == 3
    assert [s.num_output_tokens(0) for s in traffic.scripts()] == [2, 2]
    [unheard] = read_recordings(run.lines[:2])
    assert RecordedTraffic(unheard.header, unheard.entries).num_cut_off == 1


@pytest.mark.parametrize("skip_ahead", [True, False])
def test_forced_outputs_that_ended_early_end_there_again(skip_ahead):
    forced = tuple(range(50, 62))
    script = [ask("failed", forced_token_ids=forced), ask("whole", 5, at_ns=9 * STEP_NS)]
    script.append(ask("stopped", 7, at_ns=9 * STEP_NS, forced_token_ids=forced))
    script.append((13 * STEP_NS, Withdraw("stopped", 0, FinishReason.STOP)))
    run = record_run(CONFIG, 40, script, fails_in=[4])
    said = [e.num_output_tokens for e in run.recording.entries if isinstance(e, EndedSequence)]
    assert said[0] == 4
    traffic = RecordedTraffic(run.recording.header, run.recording.entries)
    result = simulate(CONFIG, traffic, ByTokens(), num_blocks=40, skip_ahead=skip_ahead)
    assert sorted(result.sequences["num_output_tokens"].tolist()) == sorted(said)
    assert max(said) == 6
    assert set(result.sequences["reason"].tolist()) == {"stop", "length"}
    steps = [number for number, line in enumerate(run.lines) if '"kind":"step"' in line]
    [killed] = read_recordings(run.lines[: steps[2]])
    cut = RecordedTraffic(killed.header, killed.entries)
    result = simulate(CONFIG, cut, ByTokens(), num_blocks=40, skip_ahead=skip_ahead)
    assert result.sequences["num_output_tokens"].tolist() == [2]


def test_a_forced_output_is_as_long_as_it_was():
    script = [ask("a", forced_token_ids=tuple(range(50, 62)), max_tokens=3)]
    traffic = traffic_of(script)
    result = simulate(CONFIG, traffic, ByTokens(), num_blocks=40)
    assert result.sequences["num_output_tokens"].tolist() == [12]
    assert result.sequences["reason"].tolist() == ["length"]


def test_who_was_refused_asks_again_and_who_had_a_name_in_use_does_not():
    script = [ask("a", max_tokens=3), ask("a"), ask("long", 100), ask("a", at_ns=10**6)]
    traffic = traffic_of(script)
    assert [s.request.request_id for s in traffic.scripts()] == ["a", "long", "a (2)"]
    assert traffic.num_left_out == 1


def test_blocks_that_are_not_made_of_recorded_ones_are_a_sentence():
    with pytest.raises(ValueError, match=r"block_size=6 cannot be replayed: .*a multiple of 4"):
        traffic_of([ask("a")], block_size=6)


def test_entries_that_do_not_follow_are_a_sentence():
    run = record_run(CONFIG, 40, [ask("a")])
    entries = [entry for entry in run.recording.entries if not isinstance(entry, QueuedSequence)]
    with pytest.raises(ValueError, match="entry 2 of the recording does not follow"):
        RecordedTraffic(run.recording.header, entries)
    entries[0] = replace(entries[0], prompt_blocks=())
    with pytest.raises(ValueError, match="'a': a prompt of 6 tokens has 1 full blocks of 4"):
        RecordedTraffic(run.recording.header, entries)


@pytest.mark.parametrize("name", ["f" * 17, "-1"])
def test_names_that_are_no_names_of_blocks_are_a_sentence(name):
    run = record_run(CONFIG, 40, [ask("a")])
    entries = run.recording.entries
    entries[0] = replace(entries[0], prompt_blocks=(name,))
    with pytest.raises(ValueError, match="entry 1 of the recording: the name of a block is a"):
        RecordedTraffic(run.recording.header, entries)
    filled = [FilledBlocks(sequence_ids=(0,), names=(name,))]
    with pytest.raises(ValueError, match="entry 3 of the recording: the name of a block is a"):
        RecordedTraffic(run.recording.header, run.recording.entries[:2] + filled)
