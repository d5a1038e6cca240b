"""A recording's own figures, in the columns in which the simulator gives its."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, replace

from headway.core.config import SchedulerConfig
from headway.core.events import Event
from headway.core.request import Request
from headway.core.scheduler import Scheduler
from headway.core.step import Step, StepResult
from headway.drive.record import StepRecord
from headway.drive.recording import Recording
from headway.replay.exact import ReplayResult, replay_exactly
from headway.simulator.collector import Collector
from headway.simulator.result import Result
from headway.simulator.step_time.base import shape_of_step


@dataclass(frozen=True, slots=True)
class _Asked:
    request: Request


class _MeasuredScheduler(Scheduler):
    """Tells a collector of each step before it is completed, as a simulated executor does."""

    def __init__(self, config: SchedulerConfig, num_blocks: int) -> None:
        super().__init__(config, num_blocks)
        self.collector = Collector(self, self)
        self._asked: dict[str, _Asked] = {}
        self._now_ns = 0

    def script_of(self, request_id: str) -> _Asked:
        return self._asked[request_id]

    def add(self, request: Request, now_ns: int) -> list[Event]:
        arrival_ns = request.arrival_ns or now_ns  # nobody noted when it came
        self._asked[request.request_id] = _Asked(replace(request, arrival_ns=arrival_ns))
        return super().add(request, now_ns)

    def schedule(self, now_ns: int) -> Step:
        self._now_ns = now_ns
        return super().schedule(now_ns)

    def complete(
        self, step: Step, result: StepResult, now_ns: int | None = None
    ) -> SequenceOf[Event]:
        self._measure(step)
        return super().complete(step, result, now_ns)

    def fail(self, step: Step, detail: str) -> list[Event]:
        self._measure(step)
        return super().fail(step, detail)

    def _measure(self, step: Step) -> None:
        if step.chunks:
            self.collector.on_run(step, shape_of_step(step), self._now_ns, self._now_ns)


class _Listening:
    """Listener and StepListener: passes on what happened, and when each step ended."""

    def __init__(self) -> None:
        self.scheduler: _MeasuredScheduler | None = None

    def make(self, config: SchedulerConfig, num_blocks: int) -> _MeasuredScheduler:
        self.scheduler = _MeasuredScheduler(config, num_blocks)
        return self.scheduler

    @property
    def collector(self) -> Collector:
        assert self.scheduler is not None
        return self.scheduler.collector

    def on_step(self, record: StepRecord) -> None:
        if record.chunks:
            self.collector.steps.end_ns[-1] = record.end_ns

    def on_events(self, events: SequenceOf[Event], now_ns: int) -> None:
        self.collector.on_events(events, now_ns)


def replay_and_measure(recording: Recording) -> tuple[ReplayResult, Result]:
    """The exact replay, and what was measured when it was recorded.

    The figures are of the steps up to the first that differs. Raises ValueError as
    `replay_exactly` does.
    """
    listening = _Listening()
    replayed = replay_exactly(
        recording,
        make_scheduler=listening.make,
        listeners=(listening,),
        step_listeners=(listening,),
    )
    scheduler = listening.scheduler
    assert scheduler is not None
    measured = Result.of(scheduler.config, scheduler.pool.num_blocks, scheduler.collector)
    return replayed, measured
