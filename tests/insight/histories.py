"""Random histories: the real scheduler and loop on a virtual clock, with a runner that makes up
tokens, and folds that hear of it as they would in the server."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from hypothesis import strategies as st

from headway.core.config import SchedulerConfig
from headway.core.events import Event
from headway.core.request import FinishReason, Request, SamplingParams, TimeLimits
from headway.core.scheduler import Scheduler
from headway.core.step import Step, StepResult
from headway.drive.clock import VirtualClock
from headway.drive.loop import EngineLoop
from headway.drive.ports import Command, Submit, Withdraw
from headway.drive.record import StepRecord
from headway.engine.build import read_stats
from headway.wire import EngineStats, StepTrace

MS = 1_000_000
STOP_TOKEN_ID = 6
NUM_BLOCKS = 12


class Fold(Protocol):
    def on_submitted(self, request: Request, now_ns: int) -> None: ...
    def on_events(self, events: Sequence[Event], now_ns: int) -> None: ...
    def on_stats(self, stats: EngineStats) -> None: ...


@dataclass(frozen=True)
class Happening:
    """Something that comes from outside at a time: a request, or a withdrawal of the last one."""

    at_ns: int
    num_prompt_tokens: int = 3
    max_tokens: int = 4
    n: int = 1
    stops: bool = False
    withdraws: bool = False
    reason: FinishReason = FinishReason.ABORT
    limits: TimeLimits = field(default_factory=TimeLimits)
    priority: int = 0


HAPPENINGS = st.lists(
    st.builds(
        Happening,
        at_ns=st.integers(0, 60).map(lambda ms: 1000 * MS + ms * MS),
        num_prompt_tokens=st.integers(1, 40),
        max_tokens=st.integers(1, 12),
        n=st.integers(1, 3),
        stops=st.booleans(),
        withdraws=st.sampled_from([False, False, False, True]),
        reason=st.sampled_from([FinishReason.ABORT, FinishReason.STOP]),
        priority=st.integers(0, 2),
        limits=st.sampled_from(
            [
                *[TimeLimits()] * 3,
                TimeLimits(max_queue_ns=12 * MS, max_run_ns=20 * MS),
                TimeLimits(deadline_ns=1040 * MS),
            ]
        ),
    ),
    max_size=14,
)
FAILING_STEPS = st.sets(st.integers(0, 30), max_size=2)
CONFIGS = st.builds(
    SchedulerConfig,
    max_num_seqs=st.integers(1, 5),
    ordering=st.sampled_from(["fcfs", "priority", "sjf", "fair", "edf"]),
    max_num_batched_tokens=st.sampled_from([3, 8, 64]),
    block_size=st.sampled_from([1, 2, 4]),
    max_model_len=st.just(44),
    enable_prefix_caching=st.booleans(),
    max_num_partial_prefills=st.sampled_from([0, 0, 3]),
    target_itl_ms=st.sampled_from([0, 0, 0.004]),
)


class Script:
    """An inbox: commands at their times; waiting jumps the clock to the next one."""

    def __init__(self, world: World, happenings: Sequence[Happening]) -> None:
        self._world = world
        self._left = sorted(happenings, key=lambda happening: happening.at_ns)

    def take(self) -> list[Command]:
        now_ns = self._world.clock.now_ns()
        due = [happening for happening in self._left if happening.at_ns <= now_ns]
        self._left = self._left[len(due) :]
        return [command for happening in due for command in self._world.ask(happening)]

    def wait(self, until_ns: int | None = None) -> bool:
        times = [happening.at_ns for happening in self._left[:1]]
        times += [] if until_ns is None else [until_ns]
        if times:
            self._world.clock.advance_to(min(times))
        return bool(times)


@dataclass(eq=False)
class World:
    """Plays happenings to its folds; afterwards `requests` and `events` say what there was."""

    folds: Sequence[Any]
    config: SchedulerConfig
    failing_steps: set[int] = field(default_factory=set)
    step_ns: int = 5 * MS
    clock: VirtualClock = field(default_factory=lambda: VirtualClock(1000 * MS))
    requests: list[Request] = field(default_factory=list)
    events: list[tuple[int, Event]] = field(default_factory=list)
    steps: list[StepTrace] = field(default_factory=list)

    def play(self, happenings: Sequence[Happening]) -> None:
        self.scheduler = Scheduler(self.config, NUM_BLOCKS)
        EngineLoop(
            self.scheduler,
            clock=self.clock,
            inbox=Script(self, happenings),
            executor=self,
            listeners=[self],
            step_listeners=[self],
        ).run()

    def ask(self, happening: Happening) -> list[Command]:
        if happening.withdraws:
            names = [request.request_id for request in self.requests[-1:]]
            return [Withdraw(name, None, happening.reason) for name in names]
        request = Request(
            request_id=f"r{len(self.requests)}",
            prompt_token_ids=tuple(i % 5 for i in range(happening.num_prompt_tokens)),
            sampling=SamplingParams(n=happening.n, max_tokens=happening.max_tokens),
            stop_token_ids=frozenset([STOP_TOKEN_ID] if happening.stops else []),
            arrival_ns=happening.at_ns,
            limits=happening.limits,
            priority=happening.priority,
        )
        self.requests.append(request)
        for fold in self.folds:
            fold.on_submitted(request, self.clock.now_ns())
        return [Submit(request)]

    def run(self, step: Step) -> StepResult:
        self.clock.advance(self.step_ns + len(step.chunks) * MS // 10)
        if step.index in self.failing_steps:
            raise MemoryError("no room")
        return StepResult([self._token(c) for c in step.chunks if c.samples])

    def _token(self, chunk: Any) -> int:
        sequence = chunk.sequence
        return (sequence.sequence_id * 31 + len(sequence.token_ids) * 7) % (STOP_TOKEN_ID + 1)

    def on_step(self, record: StepRecord) -> None:
        chunks = [(c.sequence_id, c.first_position, c.num_tokens) for c in record.chunks]
        trace = StepTrace(record.index, record.start_ns, record.end_ns, chunks)
        self.steps.append(trace)
        for fold in self.folds:
            if hasattr(fold, "on_step"):
                fold.on_step(trace)

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        self.events += [(now_ns, event) for event in events]
        for fold in self.folds:
            fold.on_events(events, now_ns)
            fold.on_stats(read_stats(self.scheduler))

    def of(self, kind: type[Event]) -> list[Any]:
        return [event for _, event in self.events if isinstance(event, kind)]
