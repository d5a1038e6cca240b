"""A recording cut into turns of the loop, and how each of its sequences ended by itself."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from headway.core.request import FinishReason
from headway.drive.record import StepRecord
from headway.drive.recording import (
    Arrival,
    CacheReset,
    EndedSequence,
    Entry,
    FilledBlocks,
    QueuedSequence,
    RefusedRequest,
    Withdrawal,
)

RecordedCommand = Arrival | Withdrawal | CacheReset
Told = QueuedSequence | RefusedRequest | EndedSequence


@dataclass(slots=True)
class Turn:
    """A step, and what lies between the one before it and this one."""

    step: StepRecord
    commands: list[RecordedCommand]
    told: list[Told]
    filled: dict[int, str] = field(default_factory=dict)  # names of blocks, by sequence id


def turns_of(entries: Iterable[Entry]) -> Iterator[Turn]:
    """One for each step. What came after the last step led to no decision, and is left out."""
    commands: list[RecordedCommand] = []
    told: list[Told] = []
    turn: Turn | None = None
    for entry in entries:
        match entry:
            case StepRecord():
                if turn is not None:
                    yield turn
                turn = Turn(entry, commands, told)
                commands, told = [], []
            case FilledBlocks():
                if turn is not None:
                    turn.filled = dict(zip(entry.sequence_ids, entry.names, strict=True))
            case Arrival() | Withdrawal() | CacheReset():
                commands.append(entry)
            case QueuedSequence() | RefusedRequest() | EndedSequence():
                told.append(entry)
    if turn is not None:
        yield turn


class End(NamedTuple):
    num_output_tokens: int
    reason: FinishReason


_BY_ITSELF = {reason.value: reason for reason in (FinishReason.STOP, FinishReason.REPETITION)}


class EndsOfOutputs:
    """Which token of a sequence ended it, where that was for what the token is.

    In a static batch the reason is told when the batch has drained, which may be too late for the
    recording; until then any will do.
    """

    def __init__(self, entries: Iterable[Entry]) -> None:
        self._ends: dict[int, End] = {}
        self._num_tokens: dict[int, int] = {}
        for entry in entries:
            if isinstance(entry, StepRecord):
                self._follow(entry)
            elif isinstance(entry, EndedSequence):
                if entry.sequence_id in self._ends:  # a withdrawal may have drained its batch
                    self._tell(entry.sequence_id, entry.reason)
                self._num_tokens.pop(entry.sequence_id, None)
        self.has_repetition = any(e.reason is FinishReason.REPETITION for e in self._ends.values())

    def of(self, sequence_id: int) -> End | None:
        return self._ends.get(sequence_id)

    def _follow(self, step: StepRecord) -> None:
        for sequence_id, num_tokens in step.outputs:
            self._num_tokens[sequence_id] = self._num_tokens.get(sequence_id, 0) + num_tokens
        for sequence_id in step.parked:
            self._set(sequence_id, FinishReason.STOP)
        for sequence_id, reason in step.retired:
            self._tell(sequence_id, reason)

    def _tell(self, sequence_id: int, reason: str) -> None:
        if reason in _BY_ITSELF:
            self._set(sequence_id, _BY_ITSELF[reason])
        else:
            self._ends.pop(sequence_id, None)

    def _set(self, sequence_id: int, reason: FinishReason) -> None:
        if sequence_id in self._num_tokens:
            self._ends[sequence_id] = End(self._num_tokens[sequence_id], reason)
