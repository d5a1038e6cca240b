"""A recording: what arrived and what was decided, as JSON lines without a word of anybody's text.

A header, then entries in the order in which they happened (docs/recording.md has every field). A
file may hold several recordings, one for each start of the engine. Texts are there as counts and as
the salted names of their blocks, so that a replay finds the same prefixes in its cache and nobody
finds the texts. Whatever a recording is cut off at, what it has up to there is all there was.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from headway.core.config import SchedulerConfig
from headway.drive.record import StepRecord

VERSION = 2


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
class FilledBlocks:
    """The latest step's tokens filled these blocks: ids of sequences, and the blocks' names."""

    sequence_ids: tuple[int, ...]
    names: tuple[str, ...]

    def __post_init__(self) -> None:
        if len(self.sequence_ids) != len(self.names):
            raise ValueError(
                f"{len(self.sequence_ids)} blocks were filled, {len(self.names)} named"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class EndedSequence:
    sequence_id: int
    reason: str
    num_output_tokens: int


Entry = (
    Arrival
    | Withdrawal
    | CacheReset
    | QueuedSequence
    | RefusedRequest
    | FilledBlocks
    | EndedSequence
    | StepRecord
)

_KINDS: dict[str, type[Entry | RecordingHeader]] = {
    "header": RecordingHeader,
    "arrival": Arrival,
    "withdrawal": Withdrawal,
    "cache_reset": CacheReset,
    "queued": QueuedSequence,
    "refused": RefusedRequest,
    "filled": FilledBlocks,
    "ended": EndedSequence,
    "step": StepRecord,
}
_NAME_OF = {kind: name for name, kind in _KINDS.items()}


def recorded_settings(config: SchedulerConfig) -> dict[str, object]:
    """What a header says of it: all but the salt, with which prompts could be guessed at."""
    return {name: value for name, value in asdict(config).items() if name != "prefix_salt"}


@dataclass(slots=True)
class Recording:
    header: RecordingHeader
    entries: list[Entry] = field(default_factory=list)


class OtherVersionError(ValueError):
    """A recording that another version of this program wrote."""


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
        if kind is RecordingHeader:
            _check_version(values["version"])
        checked: dict[str, Any] = {n: _checked(kind, n, value) for n, value in values.items()}
        return kind(**checked)
    except (TypeError, KeyError, AttributeError, json.JSONDecodeError) as error:
        raise ValueError(f"not a line of a recording: {error}") from error


def read_entries(lines: Iterable[str]) -> Iterator[RecordingHeader | Entry]:
    """All entries of a file, as they are asked for; each recording begins with its header.

    The last line of a recording may be cut off, and is left out then: its engine was killed. Raises
    ValueError, with the number of the line, for anything else that is not a recording.
    """
    has_begun = False
    cut_off: ValueError | None = None
    for number, line in enumerate(lines, 1):
        if line.isspace() or not line:
            continue
        try:
            entry = read_line(line)
        except OtherVersionError as error:
            raise ValueError(f"line {number}: {error}") from error
        except ValueError as error:
            if cut_off:
                raise cut_off from error
            cut_off = ValueError(f"line {number}: {error}")
            continue
        if not isinstance(entry, RecordingHeader) and (cut_off or not has_begun):
            raise cut_off or ValueError(f"line {number}: a recording begins with its header")
        has_begun, cut_off = True, None
        yield entry


def read_recordings(lines: Iterable[str]) -> list[Recording]:
    """All recordings of a file, in memory; raises ValueError as `read_entries` does."""
    recordings: list[Recording] = []
    for entry in read_entries(lines):
        if isinstance(entry, RecordingHeader):
            recordings.append(Recording(entry))
        else:
            recordings[-1].entries.append(entry)
    return recordings


def _check_version(version: object) -> None:
    if version != VERSION:
        raise OtherVersionError(
            f"a recording of version {version}; this Headway reads version {VERSION}: use the "
            f"Headway that recorded it"
        )


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_HAS_TYPE: dict[str, Callable[[object], bool]] = {
    "int": _is_count,
    "int | None": lambda value: value is None or _is_count(value),
    "str": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
    "tuple[str, ...]": lambda v: isinstance(v, tuple) and all(isinstance(i, str) for i in v),
    "tuple[int, ...]": lambda value: isinstance(value, tuple) and all(map(_is_count, value)),
    "Mapping[str, object]": lambda value: isinstance(value, dict),
}
_FIELD_CHECKS = {
    (kind, f.name): (str(f.type), _HAS_TYPE[str(f.type)])
    for kind in _KINDS.values()
    if kind is not StepRecord
    for f in fields(kind)
}


def _checked(kind: type[Entry | RecordingHeader], name: str, value: object) -> object:
    """Lists become tuples. Raises TypeError for what is no such field."""
    expected, has_type = _FIELD_CHECKS[kind, name]
    value = tuple(value) if isinstance(value, list) else value
    if not has_type(value):
        raise TypeError(f"{name} must be {expected}, got {value!r}")
    return value
