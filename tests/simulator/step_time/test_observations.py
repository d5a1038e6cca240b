"""What is read out of a recording is what the engine's loop had."""

from __future__ import annotations

import pytest

from headway.core.config import SchedulerConfig
from headway.core.request import Request, SamplingParams
from headway.core.scheduler import Scheduler
from headway.core.step import Step, StepResult
from headway.drive.clock import VirtualClock
from headway.drive.loop import EngineLoop
from headway.drive.ports import Command, Submit
from headway.drive.recorder import RecordedInbox, Recorder
from headway.drive.recording import Recording, RecordingHeader, read_recordings, write_line
from headway.simulator.step_time.base import StepShape, shape_of_step
from headway.simulator.step_time.observations import observe

BETWEEN_NS = 1_000  # what the loop takes between two steps
HEADER = RecordingHeader(start_ns=0, num_blocks=12, scheduler={}, model={})


class World:
    """Inbox, executor and listener of a loop whose steps take a microsecond a token."""

    def __init__(self, arrivals: list[tuple[int, Request]], *, fails_at: int = -1) -> None:
        self.clock = VirtualClock()
        self.shapes: list[StepShape] = []
        self._arrivals = arrivals
        self._fails_at = fails_at
        lines = [write_line(HEADER)]
        recorder = Recorder(lines.append, salt=b"", block_size=16)
        config = SchedulerConfig(max_num_batched_tokens=32, enable_prefix_caching=False)
        EngineLoop(
            Scheduler(config, HEADER.num_blocks),
            clock=self.clock,
            inbox=RecordedInbox(self, recorder, self.clock),
            executor=self,
            listeners=[recorder],
            step_listeners=[recorder],
        ).run()
        self.recordings = read_recordings(lines)

    def take(self) -> list[Command]:
        self.clock.advance(BETWEEN_NS)
        due = [request for at_ns, request in self._arrivals if at_ns <= self.clock.now_ns()]
        self._arrivals = self._arrivals[len(due) :]
        return [Submit(request) for request in due]

    def wait(self, until_ns: int | None = None) -> bool:
        if self._arrivals:
            self.clock.advance_to(self._arrivals[0][0])
        return bool(self._arrivals)

    def run(self, step: Step) -> StepResult:
        self.shapes.append(shape_of_step(step))
        self.clock.advance(1_000 * step.num_tokens)
        if len(self.shapes) - 1 == self._fails_at:
            raise RuntimeError("a broken pass")
        return StepResult([1 for c in step.chunks if c.samples])


def request(name: str, num_tokens: int, num_output_tokens: int) -> Request:
    sampling = SamplingParams(max_tokens=num_output_tokens)
    return Request(request_id=name, prompt_token_ids=(2,) * num_tokens, sampling=sampling)


def test_shapes_are_those_that_ran():
    world = World(
        [(0, request("a", 50, 9)), (0, request("b", 70, 60)), (9_000, request("c", 90, 40))]
    )
    seen = observe(world.recordings)
    assert [StepShape(*row) for row in seen.shapes.tolist()] == world.shapes
    assert any(shape.num_prefills and shape.num_decode_tokens for shape in world.shapes)


def test_preempted_sequences_too():
    world = World([(0, request(name, 60, 60)) for name in "abc"])
    seen = observe(world.recordings)
    assert sum(
        len(step.preempted) for step in world.recordings[0].entries if hasattr(step, "preempted")
    )
    assert [StepShape(*row) for row in seen.shapes.tolist()] == world.shapes


def test_what_lies_between_two_steps_belongs_to_the_first_unless_nobody_was_left():
    late_ns = 10_000_000
    world = World([(0, request("a", 10, 3)), (late_ns, request("b", 20, 2))])
    between = [BETWEEN_NS, BETWEEN_NS, 0, BETWEEN_NS, 0]
    expected = [1_000 * s.num_tokens + gap for s, gap in zip(world.shapes, between, strict=True)]
    assert observe(world.recordings).durations_ns.tolist() == expected


def test_a_failed_step_is_left_out():
    world = World([(0, request("a", 10, 3)), (0, request("b", 10, 3))], fails_at=1)
    assert len(world.shapes) == 2
    seen = observe(world.recordings)
    assert [StepShape(*row) for row in seen.shapes.tolist()] == world.shapes[:1]


def test_recordings_follow_each_other():
    world = World([(0, request("a", 10, 3))])
    assert len(observe(world.recordings * 2)) == 2 * len(world.shapes)
    assert len(observe([])) == 0


def test_entries_that_do_not_follow_are_a_sentence():
    [recording] = World([(0, request("a", 10, 3))]).recordings
    arrival, queued, *rest = recording.entries
    with pytest.raises(ValueError, match=r"sequence 0 .* of request 'a', which did not arrive"):
        observe([Recording(HEADER, [queued, *rest])])
    with pytest.raises(ValueError, match="step 0 of the recording serves sequence 0, which was no"):
        observe([Recording(HEADER, [arrival, *rest])])
