"""A recording: what arrived and what was decided, as JSON lines without a word of anybody's text.

A header, then entries in the order in which they happened. A file may hold several recordings, one
for each start of the engine. Prompts are there as counts and as the salted names of their blocks,
so that a replay finds the same prefixes in its cache and nobody finds the prompts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from headway.drive.record import StepRecord

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingHeader:
    """How the engine was set up. `scheduler`: SchedulerConfig; `model`: what is known of it."""

    version: int = VERSION
    start_ns: int
    num_blocks: int
    scheduler: Mapping[str, object]
    model: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request as the engine took it; times in nanoseconds on the engine's clock."""

    at_ns: int
    request_id: str
    arrival_ns: int
    num_prompt_tokens: int
    prompt_blocks: tuple[str, ...]  # names of the prompt's full blocks
    n: int
    max_tokens: int | None
    min_tokens: int
    ignore_eos: bool
    num_forced_tokens: int
    prompt_logprobs: int | None  # not None: it takes nothing from the prefix cache
    priority: int
    tenant: str
    adapter: str
    max_queue_ns: int | None
    max_run_ns: int | None
    deadline_ns: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Withdrawal:
    """A request, or one of its sequences, was ended from outside."""

    at_ns: int
    request_id: str
    index: int | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheReset:
    at_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueuedSequence:
    sequence_id: int
    request_id: str
    index: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRequest:
    request_id: str
    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedSequence:
    """`output_blocks`: names of the full blocks that end in its output, for later prompts."""

    sequence_id: int
    reason: str
    num_output_tokens: int
    output_blocks: tuple[str, ...]


Entry = (
    Arrival | Withdrawal | CacheReset | QueuedSequence | RefusedRequest | EndedSequence | StepRecord
)

_KINDS: dict[str, type[Entry | RecordingHeader]] = {
    "header": RecordingHeader,
    "arrival": Arrival,
    "withdrawal": Withdrawal,
    "cache_reset": CacheReset,
    "queued": QueuedSequence,
    "refused": RefusedRequest,
    "ended": EndedSequence,
    "step": StepRecord,
}
_NAME_OF = {kind: name for name, kind in _KINDS.items()}


@dataclass(slots=True)
class Recording:
    header: RecordingHeader
    entries: list[Entry] = field(default_factory=list)


def write_line(entry: Entry | RecordingHeader) -> str:
    """The entry as one line, without its newline."""
    values = {f.name: getattr(entry, f.name) for f in fields(entry)}
    return json.dumps({"kind": _NAME_OF[type(entry)], **values}, separators=(",", ":"))


def read_line(line: str) -> Entry | RecordingHeader:
    """Raises ValueError for anything that `write_line` did not write."""
    try:
        values = json.loads(line)
        kind = _KINDS[values.pop("kind")]
        if kind is StepRecord:
            return StepRecord.from_values(values)
        frozen: dict[str, Any] = {name: _frozen(value) for name, value in values.items()}
        return kind(**frozen)
    except (TypeError, KeyError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError(f"not a line of a recording: {error}") from error


def read_recordings(lines: Iterable[str]) -> list[Recording]:
    """All recordings of a file. The last line of each may be cut off: its engine was killed.

    Raises ValueError, with the number of the line, for anything else that is not a recording.
    """
    recordings: list[Recording] = []
    cut_off: ValueError | None = None
    for number, line in enumerate(lines, 1):
        try:
            entry = read_line(line)
        except ValueError as error:
            if cut_off:
                raise cut_off from error
            cut_off = ValueError(f"line {number}: {error}")
            continue
        if isinstance(entry, RecordingHeader):
            recordings.append(Recording(_checked(entry)))
        elif cut_off or not recordings:
            raise cut_off or ValueError(f"line {number}: a recording begins with its header")
        else:
            recordings[-1].entries.append(entry)
        cut_off = None
    return recordings


def _checked(header: RecordingHeader) -> RecordingHeader:
    if header.version != VERSION:
        raise ValueError(f"a recording of version {header.version}; this reads version {VERSION}")
    return header


def _frozen(value: object) -> object:
    return tuple(value) if isinstance(value, list) else value
