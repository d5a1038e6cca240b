"""A recording's own figures: those of a simulation that takes as long."""

from __future__ import annotations

import numpy as np
from tests.replay.recorded_run import START_NS, STEP_NS, STOP_TOKEN_ID, record_run

from headway.core.config import SchedulerConfig
from headway.core.request import Request, SamplingParams
from headway.drive.ports import Submit
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
        is_time = name.endswith("_ns")
        seen = measured.sequences[name] - START_NS if is_time else measured.sequences[name]
        assert np.array_equal(seen, column), name
    for name, column in simulated.steps.items():
        is_time = name.endswith("_ns")
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
