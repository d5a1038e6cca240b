"""Runs of a scheduler on a toy model that are recorded, for replays of the recording."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import asdict, dataclass

from headway.core.config import SchedulerConfig
from headway.core.scheduler import Scheduler
from headway.core.sequence import Sequence
from headway.core.step import Step, StepResult
from headway.drive.clock import VirtualClock
from headway.drive.loop import EngineLoop
from headway.drive.ports import Command
from headway.drive.record import StepRecord
from headway.drive.recorder import RecordedInbox, Recorder
from headway.drive.recording import Recording, RecordingHeader, read_recordings, write_line

STEP_NS = 1000
VOCABULARY = 5
STOP_TOKEN_ID = 4
START_NS = 77_000


@dataclass(slots=True)
class RecordedRun:
    lines: list[str]
    steps: list[StepRecord]

    @property
    def recording(self) -> Recording:
        [recording] = read_recordings(self.lines)
        return recording


class ToyExecutor:
    """Says what is forced, else what the tokens so far make it say. May fail."""

    def __init__(self, clock: VirtualClock, fails_in: Iterable[int]) -> None:
        self._clock = clock
        self._fails_in = frozenset(fails_in)

    def run(self, step: Step) -> StepResult:
        self._clock.advance(STEP_NS + step.num_tokens)
        if step.index in self._fails_in:
            raise MemoryError("no room for 'secrets'")
        chunks = [chunk for chunk in step.chunks if chunk.samples]
        return StepResult([_say(c.sequence) for c in chunks])


def _say(sequence: Sequence) -> int:
    if forced := sequence.request.forced_token_ids[sequence.num_output_tokens :]:
        return forced[0]
    salt = (sequence.request.seed + 1) * (sequence.index + 1)
    return hash((salt, *sequence.token_ids[-3:], sequence.num_tokens)) % VOCABULARY


class ScriptedInbox:
    """Commands at given times of the clock."""

    def __init__(self, clock: VirtualClock, script: SequenceOf[tuple[int, Command]]) -> None:
        self._clock = clock
        self._script = sorted(script, key=lambda item: item[0])

    def take(self) -> list[Command]:
        due = [c for at_ns, c in self._script if START_NS + at_ns <= self._clock.now_ns()]
        self._script = self._script[len(due) :]
        return due

    def wait(self, until_ns: int | None = None) -> bool:
        times = [START_NS + self._script[0][0]] if self._script else []
        times += [] if until_ns is None else [until_ns]
        if not times:
            return False
        self._clock.advance_to(min(times))
        return True


class Steps:
    def __init__(self) -> None:
        self.records: list[StepRecord] = []

    def on_step(self, record: StepRecord) -> None:
        self.records.append(record)


def record_run(
    config: SchedulerConfig,
    num_blocks: int,
    script: SequenceOf[tuple[int, Command]],
    *,
    fails_in: Iterable[int] = (),
) -> RecordedRun:
    """The lines of the recording, header first, and the steps as they were decided."""
    clock = VirtualClock(START_NS)
    settings = {k: v for k, v in asdict(config).items() if k != "prefix_salt"}
    header = RecordingHeader(start_ns=START_NS, num_blocks=num_blocks, scheduler=settings, model={})
    run = RecordedRun([write_line(header)], [])
    recorder = Recorder(run.lines.append, salt=b"salt", block_size=config.block_size)
    steps = Steps()
    loop = EngineLoop(
        Scheduler(config, num_blocks),
        clock=clock,
        inbox=RecordedInbox(ScriptedInbox(clock, script), recorder, clock),
        executor=ToyExecutor(clock, fails_in),
        listeners=[recorder],
        step_listeners=[recorder, steps],
    )
    loop.run()
    recorder.write_steps()
    run.steps = steps.records
    return run
