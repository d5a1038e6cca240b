"""A recording decided once more: the same commands at the same borders of steps, the same times."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from itertools import groupby, zip_longest
from operator import attrgetter
from typing import assert_never

from headway.core.config import SchedulerConfig
from headway.core.events import Aborted, Advanced, Event, Queued, Rejected, Retired
from headway.core.request import FinishReason
from headway.core.scheduler import Scheduler
from headway.core.sequence import Sequence
from headway.core.step import Step, StepResult
from headway.drive.clock import VirtualClock
from headway.drive.loop import EngineLoop
from headway.drive.ports import (
    Command,
    Follower,
    Inbox,
    Listener,
    ResetPrefixCache,
    StepListener,
    Submit,
    Withdraw,
)
from headway.drive.record import StepRecord
from headway.drive.recorder import RecordedInbox, without_quotes
from headway.drive.recording import (
    Arrival,
    CacheReset,
    EndedSequence,
    QueuedSequence,
    Recording,
    RefusedRequest,
    Withdrawal,
)
from headway.replay.compare import difference
from headway.replay.requests import recorded_config, request_of
from headway.replay.script import EndsOfOutputs, RecordedCommand, Told, Turn, turns_of
from headway.replay.tokens import STOP_TOKEN, BlockTokens


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """`difference`: where the scheduler decided otherwise, after `num_steps` equal decisions."""

    num_steps: int
    difference: str | None


def replay_exactly(
    recording: Recording,
    *,
    make_scheduler: Callable[[SchedulerConfig, int], Scheduler] = Scheduler,
    listeners: Iterable[Listener] = (),
    step_listeners: Iterable[StepListener] = (),
    followers: Iterable[Follower] = (),
) -> ReplayResult:
    """Let a scheduler decide every recorded step again, up to the first that it decides otherwise.

    Steps take as long as they took, tokens come when and end what they did, prefixes are as equal
    as they were; steps that failed fail. Raises ValueError for a recording that cannot be one.
    """
    replay = _Replay(recording, make_scheduler, listeners, step_listeners, tuple(followers))
    num_steps = 0
    for turn in turns_of(recording.entries):
        if found := replay.turn(turn):
            return ReplayResult(num_steps, found)
        num_steps += 1
    return ReplayResult(num_steps, None)


class ReplayedFailureError(Exception):
    """This step failed when it was recorded."""


class _Replay:
    """Inbox and Executor of a loop that is turned once for each recorded step."""

    def __init__(
        self,
        recording: Recording,
        make_scheduler: Callable[[SchedulerConfig, int], Scheduler],
        listeners: Iterable[Listener],
        step_listeners: Iterable[StepListener],
        followers: tuple[Follower, ...],
    ) -> None:
        header = recording.header
        config = recorded_config(header)
        self._clock = VirtualClock(header.start_ns)
        self._tokens = BlockTokens(config.block_size)
        self._ends = EndsOfOutputs(recording.entries)
        self._commands: list[Command] = []
        self._turn: Turn | None = None
        self._log = _Log()
        inbox: Inbox = self
        for follower in followers:
            inbox = RecordedInbox(inbox, follower, self._clock)
        self._loop = EngineLoop(
            make_scheduler(config, header.num_blocks),
            clock=self._clock,
            inbox=inbox,
            executor=self,
            listeners=[*listeners, *followers, self._log],
            step_listeners=[*step_listeners, self._log],
            run_listeners=followers,
        )

    def turn(self, turn: Turn) -> str | None:
        """Turn the loop once; how the outcome differs from the recorded one."""
        self._turn = turn
        *idle, latest = _by_time(turn.commands)
        for at_ns, commands in idle:  # after which there was nothing to do, or a step would follow
            self._take(commands, min(at_ns, turn.step.start_ns))
        self._take(latest[1], turn.step.start_ns)
        return self._log.difference_from(turn)

    def _take(self, commands: list[RecordedCommand], now_ns: int) -> None:
        self._commands = [self._command(command) for command in commands]
        self._clock.advance_to(max(now_ns, self._clock.now_ns()))
        self._loop.turn()

    def take(self) -> list[Command]:
        commands, self._commands = self._commands, []
        return commands

    def wait(self, until_ns: int | None = None) -> bool:
        return False

    def _command(self, command: RecordedCommand) -> Command:
        match command:
            case Arrival():
                prompt = self._tokens.named_prompt(command)
                may_repeat = self._ends.has_repetition
                return Submit(request_of(command, prompt, may_repeat=may_repeat))
            case Withdrawal():
                reason = FinishReason(command.reason)
                return Withdraw(command.request_id, command.index, reason)
            case CacheReset():
                return ResetPrefixCache()
            case _:
                assert_never(command)

    def run(self, step: Step) -> StepResult:
        assert self._turn is not None
        self._clock.advance_to(self._turn.step.end_ns)
        if self._turn.step.error:
            raise ReplayedFailureError
        return StepResult(
            [
                self._token(chunk.sequence, self._turn.filled)
                for chunk in step.chunks
                if chunk.samples
            ]
        )

    def _token(self, sequence: Sequence, filled: dict[int, str]) -> int:
        end = self._ends.of(sequence.sequence_id)
        if end is not None and end.num_output_tokens == sequence.num_output_tokens + 1:
            return STOP_TOKEN if end.reason is FinishReason.STOP else sequence.token_ids[-1]
        name = filled.get(sequence.sequence_id)
        if name is not None:
            return self._tokens.number_of(name)
        return self._tokens.filler(sequence.num_tokens)


def _by_time(commands: list[RecordedCommand]) -> list[tuple[int, list[RecordedCommand]]]:
    """Those that were taken together; at least one group, which may be empty."""
    groups = [(at_ns, list(group)) for at_ns, group in groupby(commands, attrgetter("at_ns"))]
    return groups or [(0, [])]


class _Log:
    """What was decided and told up to the latest step, in the terms of a recording."""

    def __init__(self) -> None:
        self._step: StepRecord | None = None
        self._told_before: list[Told] = []
        self._told: list[Told] = []
        self._num_tokens: dict[int, int] = {}

    def on_step(self, record: StepRecord) -> None:
        self._step = without_quotes(record)
        self._told_before, self._told = self._told, []

    def on_events(self, events: SequenceOf[Event], now_ns: int) -> None:
        for event in events:
            match event:
                case Advanced(sequence_id, _, token_ids):
                    self._num_tokens[sequence_id] += len(token_ids)
                case Queued(sequence_id, request_id, index):
                    self._num_tokens[sequence_id] = 0
                    self._told.append(
                        QueuedSequence(sequence_id=sequence_id, request_id=request_id, index=index)
                    )
                case Rejected(request_id, _, cause):
                    self._told.append(RefusedRequest(request_id=request_id, cause=cause.value))
                case Retired(sequence_id) | Aborted(sequence_id):
                    self._told.append(
                        EndedSequence(
                            sequence_id=sequence_id,
                            reason=event.reason.value,
                            num_output_tokens=self._num_tokens.pop(sequence_id),
                        )
                    )

    def difference_from(self, turn: Turn) -> str | None:
        step, self._step = self._step, None
        if step is None:
            return f"step {turn.step.index} was recorded, but there is nothing to do in it"
        if found := difference(turn.step, step):
            return found
        for recorded, told in zip_longest(turn.told, self._told_before):
            if recorded != told:
                was, is_now = recorded or "nothing", told or "nothing"
                return f"before step {step.index}: {was} in the first and {is_now} in the second"
        return None
