"""A step as logged: the only log format, the same from engine, simulator and replay."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, fields
from itertools import repeat
from types import NoneType
from typing import Any, NamedTuple, get_type_hints

from headway.core.events import Advanced, Event, Retired
from headway.core.sequence import Sequence, SequenceStatus
from headway.core.step import Step, apart
from headway.core.stride import Stride

_FINISHED = SequenceStatus.FINISHED


class ChunkRecord(NamedTuple):
    sequence_id: int
    first_position: int
    num_tokens: int


class EntryRecord(NamedTuple):
    """A sequence that got a slot, with the tokens that the prefix cache gave it."""

    sequence_id: int
    num_cached_tokens: int


class PreemptionRecord(NamedTuple):
    sequence_id: int
    beneficiary_id: int
    num_lost_tokens: int


class RetirementRecord(NamedTuple):
    sequence_id: int
    reason: str


class ExpiryRecord(NamedTuple):
    sequence_id: int
    cause: str


class OutputRecord(NamedTuple):
    """How many tokens a sequence got from the step."""

    sequence_id: int
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRecord:
    """Ids, counts and times, nothing of what anybody wrote. `error` is set when the step failed.

    Two drivers decided the same when their records are equal but for the times: `decision`.
    """

    index: int
    start_ns: int
    end_ns: int
    chunks: tuple[ChunkRecord, ...]
    expired: tuple[ExpiryRecord, ...] = ()
    admitted: tuple[EntryRecord, ...] = ()
    resumed: tuple[EntryRecord, ...] = ()
    preempted: tuple[PreemptionRecord, ...] = ()
    retired: tuple[RetirementRecord, ...] = ()
    outputs: tuple[OutputRecord, ...] = ()
    parked: tuple[int, ...] = ()  # who ended in a static batch, to be told when it has drained
    blocker: str | None = None
    blocked_sequence_id: int | None = None
    error: str = ""
    predicted_ns: int | None = None  # how long it was to take, where that decided its prompts

    @property
    def decision(self) -> tuple[object, ...]:
        """Everything but the times, to compare with ==."""
        timeless = (f.name for f in fields(self) if f.name not in ("start_ns", "end_ns"))
        return tuple(getattr(self, name) for name in timeless)

    def to_json(self) -> str:
        """One line."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        if self.predicted_ns is None:
            del values["predicted_ns"]  # as of steps recorded before there were any
        return json.dumps(values, separators=(",", ":"))

    @staticmethod
    def from_json(line: str) -> StepRecord:
        """Raises ValueError for anything that `to_json` did not write."""
        return StepRecord.from_values(json.loads(line))

    @staticmethod
    def from_values(values: Any) -> StepRecord:
        """From its fields as JSON has them. Raises ValueError if they are something else."""
        try:
            for name, types in _SINGLE.items():
                if name not in values and name in _NOT_ALWAYS:
                    continue
                if type(values[name]) not in types:
                    raise TypeError(f"{name} cannot be {values[name]!r}")
            rows = {name: _rows(kind, values[name]) for name, kind in _ROWS.items()}
            return StepRecord(**{**values, **rows, "parked": _ids("parked", values["parked"])})
        except (TypeError, KeyError, AttributeError) as error:
            raise ValueError(f"not a step record: {error}") from error


@dataclass(frozen=True, slots=True)
class StepBrief:
    """A step in a few words: `chunks` are all but the decodes, of which there are counts."""

    index: int
    start_ns: int
    end_ns: int
    chunks: tuple[ChunkRecord, ...]
    num_decodes: int
    decode_attended: int  # tokens, summed over the decodes; each attends itself too
    blocker: str | None


def brief_of(step: Step, start_ns: int, end_ns: int) -> StepBrief:
    """A recompute is no decode, not even of one token."""
    chunks: list[ChunkRecord] = []
    firsts, others = apart(step.chunks)
    decode_attended = sum(firsts) + len(firsts)
    for sequence, first, count, samples, _ in others:
        num_old = max(sequence.num_prompt_tokens, sequence.num_reached_tokens)
        if count == 1 and samples and first >= num_old:
            decode_attended += first + 1
            continue
        chunks.append(ChunkRecord(sequence.sequence_id, first, count))
    num_decodes = len(step.chunks) - len(chunks)
    blocker = step.blocker.value if step.blocker else None
    return StepBrief(
        step.index, start_ns, end_ns, tuple(chunks), num_decodes, decode_attended, blocker
    )


_Row = ChunkRecord | ExpiryRecord | EntryRecord | PreemptionRecord | RetirementRecord | OutputRecord
_ROWS: dict[str, type[_Row]] = {
    "chunks": ChunkRecord,
    "expired": ExpiryRecord,
    "admitted": EntryRecord,
    "resumed": EntryRecord,
    "preempted": PreemptionRecord,
    "retired": RetirementRecord,
    "outputs": OutputRecord,
}


_SINGLE: dict[str, tuple[type, ...]] = {
    "index": (int,),
    "start_ns": (int,),
    "end_ns": (int,),
    "blocker": (str, NoneType),
    "blocked_sequence_id": (int, NoneType),
    "error": (str,),
    "predicted_ns": (int, NoneType),
}
_NOT_ALWAYS = ("predicted_ns",)
_COLUMNS = {
    kind: [{column} for column in get_type_hints(kind).values()] for kind in {*_ROWS.values()}
}


def _rows(kind: type[_Row], rows: list[list[Any]]) -> tuple[_Row, ...]:
    """A day has hundreds of millions of them: no Python call for each."""
    if rows == []:
        return ()
    types = [set(map(type, column)) for column in zip(*rows, strict=False)]
    if types != _COLUMNS[kind] or set(map(len, rows)) != {len(types)}:
        columns = ", ".join(f"{n} {t.__name__}" for n, t in get_type_hints(kind).items())
        raise TypeError(f"{kind.__name__} has the columns {columns}, not as in {rows!r:.200}")
    return tuple(map(tuple.__new__, repeat(kind), rows))


def _ids(name: str, ids: list[Any]) -> tuple[int, ...]:
    if ids and set(map(type, ids)) != {int}:
        raise TypeError(f"{name} must be ids of sequences, got {ids}")
    return tuple(ids)


def record_step(
    step: Step, outcome: Iterable[Event], *, start_ns: int, end_ns: int, error: str = ""
) -> StepRecord:
    """The record of a step and of the events that its completion (or failure) gave."""
    outcome = list(outcome)
    ended = [*step.retired, *(event for event in outcome if isinstance(event, Retired))]
    retired = tuple(RetirementRecord(e.sequence_id, e.reason.value) for e in ended)
    return StepRecord(
        index=step.index,
        start_ns=start_ns,
        end_ns=end_ns,
        chunks=tuple(
            ChunkRecord(chunk.sequence.sequence_id, chunk.first_position, chunk.num_tokens)
            for chunk in step.chunks
        ),
        expired=tuple(ExpiryRecord(e.sequence_id, e.cause.value) for e in step.expired),
        admitted=tuple(EntryRecord(e.sequence_id, e.num_cached_tokens) for e in step.admitted),
        resumed=tuple(EntryRecord(e.sequence_id, e.num_cached_tokens) for e in step.resumed),
        preempted=tuple(
            PreemptionRecord(e.sequence_id, e.beneficiary_id, e.num_lost_tokens)
            for e in step.preempted
        ),
        retired=retired,
        outputs=tuple(
            OutputRecord(e.sequence_id, len(e.token_ids))
            for e in outcome
            if isinstance(e, Advanced)
        ),
        parked=_parked((chunk.sequence for chunk in step.chunks), retired),
        blocker=step.blocker.value if step.blocker else None,
        blocked_sequence_id=step.blocked_sequence_id,
        error=error,
        predicted_ns=step.predicted_ns,
    )


def record_stride(
    stride: Stride, outcome: Iterable[Event], *, start_ns: int, ends_ns: SequenceOf[int]
) -> Iterator[StepRecord]:
    """The records of a stride's steps, one by one, after they were taken."""
    num_steps = len(ends_ns)
    outputs = tuple(OutputRecord(sequence.sequence_id, 1) for sequence in stride.sequences)
    firsts = [(s.sequence_id, s.num_computed_tokens - num_steps) for s in stride.sequences]
    ended = tuple(
        RetirementRecord(event.sequence_id, event.reason.value)
        for event in outcome
        if isinstance(event, Retired)
    )
    parked = _parked(stride.sequences, ended)
    for number, end_ns in enumerate(ends_ns):
        is_last = number == num_steps - 1
        yield StepRecord(
            index=stride.first_index + number,
            start_ns=start_ns,
            end_ns=end_ns,
            chunks=tuple(ChunkRecord(s, first + number, 1) for s, first in firsts),
            retired=ended if is_last else (),
            outputs=outputs,
            parked=parked if is_last else (),
            blocker=stride.blocker.value if stride.blocker else None,
            blocked_sequence_id=stride.blocked_sequence_id,
        )
        start_ns = end_ns


def _parked(
    sequences: Iterable[Sequence], retired: tuple[RetirementRecord, ...]
) -> tuple[int, ...]:
    """Those of a step that have ended and were not told so."""
    finished = [s.sequence_id for s in sequences if s.status is _FINISHED]
    if not finished:
        return ()
    told = {row.sequence_id for row in retired}
    return tuple(sequence_id for sequence_id in finished if sequence_id not in told)
