"""A recording's own figures: those of a simulation that takes as long."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.replay.recorded_run import START_NS, STEP_NS, STOP_TOKEN_ID, record_run

from headway.core.config import SchedulerConfig
from headway.core.request import Request, SamplingParams
from headway.drive.ports import Submit
from headway.drive.recording import read_recordings
from headway.replay.measured import replay_and_measure
from headway.replay.traffic import RecordedTraffic
from headway.simulator.simulate import simulate
from headway.simulator.step_time.base import StepShape

CONFIG = SchedulerConfig(block_size=4, max_num_seqs=4, max_model_len=60)


class ByTokens:
    """As long as the toy executor of the recorded runs."""

    def step_ns(self, shape: StepShape) -> int:
        return STEP_NS + shape.num_tokens

    def terms_ns(self, shape: StepShape) -> dict[str, float]:
        return {"all": float(self.step_ns(shape))}


def asked(number: int, at_ns: int) -> tuple[int, Submit]:
    request = Request(
        request_id=str(number),
        prompt_token_ids=tuple(range(number, number + 9)),
        sampling=SamplingParams(max_tokens=12, seed=number),
        stop_token_ids=frozenset({STOP_TOKEN_ID}),
        arrival_ns=START_NS + at_ns,
    )
    return at_ns, Submit(request)


def without_stops(number: int, at_ns: int) -> tuple[int, Submit]:
    _, submit = asked(number, at_ns)
    return at_ns, Submit(replace(submit.request, stop_token_ids=frozenset()))


def test_measured_columns_are_those_of_the_simulation():
    script = [asked(number, 1500 * number) for number in range(12)]
    run = record_run(CONFIG, 12, script)
    replayed, measured = replay_and_measure(run.recording)
    assert replayed.difference is None
    assert replayed.num_steps == len(run.steps)
    assert measured.summary().num_preemptions > 0
    ends = [step.end_ns for step in run.steps]
    assert measured.steps["end_ns"].tolist() == ends
    traffic = RecordedTraffic(run.recording.header, run.recording.entries)
    simulated = simulate(CONFIG, traffic, ByTokens(), num_blocks=12)
    for name, column in simulated.sequences.items():
        is_time = name.endswith("_ns") and name != "preempted_ns"  # which is a span
        seen = measured.sequences[name] - START_NS if is_time else measured.sequences[name]
        assert np.array_equal(seen, column), name
    for name, column in simulated.steps.items():
        is_time = name.endswith("_ns") and name != "preempted_ns"  # which is a span
        seen = measured.steps[name] - START_NS if is_time else measured.steps[name]
        assert np.array_equal(seen, column), name
    assert measured.summary() == simulated.summary()


def test_figures_end_where_decisions_differ():
    run = record_run(CONFIG, 12, [asked(0, 0), asked(1, 0)])
    recording = run.recording
    header = recording.header
    object.__setattr__(header, "scheduler", {**header.scheduler, "max_num_seqs": 1})
    replayed, measured = replay_and_measure(recording)
    assert replayed.num_steps == 0
    assert replayed.difference is not None
    assert len(measured.steps["end_ns"]) <= 1


def test_a_recording_that_breaks_off_lasts_until_its_last_step():
    """Two that end with twelve tokens, then a third of which seven steps were recorded."""
    script = [without_stops(number, at_ns) for number, at_ns in enumerate((0, 0, 10_000))]
    run = record_run(CONFIG, 40, script)
    third = [step for step in run.steps if any(chunk.sequence_id == 2 for chunk in step.chunks)]
    last = third[6]
    after = next(n for n, line in enumerate(run.lines) if f'"index":{last.index + 1},' in line)
    cut = [line for line in run.lines[:after] if '"sequence_id":2,"reason"' not in line]
    _, measured = replay_and_measure(read_recordings(cut)[0])
    summary = measured.summary()
    assert (summary.num_requests, summary.num_finished, summary.num_unfinished) == (3, 2, 1)
    assert (summary.num_aborted, summary.num_failed) == (0, 0)
    assert summary.duration_s == (last.end_ns - START_NS) / 1e9
    assert summary.duration_s > measured.sequences["ended_ns"].max() / 1e9 - START_NS / 1e9
    assert summary.output_tokens_per_second * summary.duration_s == pytest.approx(12 + 12 + 7)
    assert summary.busy_share <= 1


def test_a_request_that_failed_is_not_served_and_its_times_do_not_count():
    run = record_run(CONFIG, 40, [without_stops(0, 0), without_stops(1, 5_000)], fails_in=[14])
    _, measured = replay_and_measure(run.recording)
    summary = measured.summary()
    assert measured.sequences["reason"].tolist() == ["length", "error"]
    assert (summary.num_finished, summary.num_failed, summary.num_aborted) == (1, 1, 0)
    ended_ns, arrival_ns = (measured.sequences[name][0] for name in ("ended_ns", "arrival_ns"))
    assert summary.e2e_s.max == summary.e2e_s.mean == (ended_ns - arrival_ns) / 1e9
    assert len(measured.tpot_s()) == 1
    assert summary.requests_per_second == pytest.approx(1 / summary.duration_s)
