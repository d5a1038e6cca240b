"""Our own files of requests: a JSON object on each line, in order of arrival.

docs/guides/workloads.md lists the fields. Files are .jsonl, .jsonl.gz or .jsonl.zst.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import msgspec

from headway.simulator.workload.arrivals import ClosedLoop
from headway.simulator.workload.base import ClientRequest, Segment, Traffic, Workload
from headway.simulator.workload.synthetic import Streams, Synthetic
from headway.simulator.workload.traces.text import lines, write_lines
from headway.simulator.workload.traces.trace import Names, Row, TraceFile, Window, blocks
from headway.simulator.workload.waits import SECOND, nanoseconds

_Count = Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
_Seconds = Annotated[float, msgspec.Meta(ge=0, le=1e9)]
_Name = str | int


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    prompt_tokens: _Count
    output_tokens: _Count
    arrival_s: _Seconds | None = None
    request_id: str | None = None
    max_tokens: _Count | None = None
    tenant: str = ""
    adapter: str = ""
    priority: int = 0
    leaves_after_s: _Seconds | None = None
    max_queue_s: _Seconds | None = None
    deadline_s: _Seconds | None = None
    prefix: _Name | None = None
    prefix_tokens: _Count | None = None
    hash_ids: list[_Name] | None = None
    block_tokens: _Count | None = None
    texts: list[tuple[_Name, _Count]] | None = None
    output_text: _Name | None = None
    session: _Name | None = None
    turn: Annotated[int, msgspec.Meta(ge=0)] | None = None
    think_s: _Seconds | None = None


def open_requests(path: Path | str, window: Window | None = None) -> TraceFile:
    """A file of our own lines as a workload, read as it runs."""
    path = Path(path)
    return TraceFile(path, "headway", lambda: read_rows(path), window or Window())


def read_rows(path: Path) -> Iterator[Row]:
    """Raises ValueError with file and line for what is not a request, or comes out of order."""
    reader = _Reader()
    decode = msgspec.json.Decoder(_Line).decode
    head: Row | None = None
    for number, line in lines(path):
        try:
            row, follows = reader.row(decode(line), number)
        except (ValueError, msgspec.DecodeError) as error:
            raise ValueError(f"{path}:{number}: {error}") from None
        if follows and head is not None:
            head = head._replace(later=(*head.later, row))
            continue
        if head is not None:
            yield head
        head = row
    if head is not None:
        yield head


class _Reader:
    """What earlier lines mean for later ones."""

    def __init__(self) -> None:
        self._names = Names()
        self._ids: set[str] = set()
        self._sessions: dict[_Name, tuple[int, Row]] = {}  # the last turn of each
        self._last_ns = 0
        self._last_session: _Name | None = None

    def row(self, line: _Line, number: int) -> tuple[Row, bool]:
        """The request, and whether it follows the answer to the line before."""
        self._check(line)
        before = self._turn_before(line)
        follows = before is not None and line.think_s is not None
        row = Row(
            request_id=line.request_id or f"line-{number}",
            arrival_ns=self._arrival_ns(line, follows),
            prompt=self._prompt(line, before),
            output=Segment(self._output_name(line), line.output_tokens),
            max_tokens=line.max_tokens,
            tenant=line.tenant,
            adapter=line.adapter,
            priority=line.priority,
            leaves_after_ns=_or_none(line.leaves_after_s),
            max_queue_ns=_or_none(line.max_queue_s),
            deadline_ns=_or_none(line.deadline_s),
            think_ns=_or_none(line.think_s) or 0,
        )
        if line.session is not None:
            turn = 0 if before is None else self._sessions[line.session][0] + 1
            self._sessions[line.session] = (turn, row)
        self._last_session = line.session
        return row, follows

    def _check(self, line: _Line) -> None:
        for name, other in (
            ("prefix", "prefix_tokens"),
            ("prefix_tokens", "prefix"),
            ("hash_ids", "block_tokens"),
            ("block_tokens", "hash_ids"),
            ("turn", "session"),
            ("think_s", "session"),
        ):
            if getattr(line, name) is not None and getattr(line, other) is None:
                raise ValueError(f"{name} is given without {other}")
        ways = [n for n in ("prefix", "hash_ids", "texts") if getattr(line, n) is not None]
        if len(ways) > 1:
            raise ValueError(f"the prompt is described by {' and by '.join(ways)}; say one of them")
        if line.request_id is not None:
            if line.request_id in self._ids:
                raise ValueError(f"request_id {line.request_id!r} is there twice")
            self._ids.add(line.request_id)

    def _turn_before(self, line: _Line) -> Row | None:
        """The turn before this one; None for a first turn."""
        if line.session is None:
            return None
        turn, row = self._sessions.get(line.session, (-1, None))
        if line.turn is not None and line.turn != turn + 1:
            raise ValueError(
                f"turn {turn + 1} of session {line.session!r} is next, not {line.turn}"
            )
        if line.think_s is not None and row is None:
            raise ValueError("a first turn has an arrival_s, no think_s")
        if line.think_s is not None and line.session != self._last_session:
            raise ValueError("a turn with think_s stands right below the turn before it")
        return row

    def _arrival_ns(self, line: _Line, follows: bool) -> int:
        if follows and line.arrival_s is None:
            return self._last_ns
        if follows:
            raise ValueError("a turn has an arrival_s or a think_s, not both")
        if line.arrival_s is None:
            raise ValueError("arrival_s is missing")
        arrival_ns = nanoseconds(line.arrival_s)
        if arrival_ns < self._last_ns:
            raise ValueError(
                f"arrival_s {line.arrival_s} is before the {self._last_ns / SECOND} above it: "
                "sort the file by arrival"
            )
        self._last_ns = arrival_ns
        return arrival_ns

    def _prompt(self, line: _Line, before: Row | None) -> tuple[Segment, ...]:
        names = self._names
        if line.texts is not None:
            segments = [Segment(names.of("text", name), count) for name, count in line.texts]
            total = sum(segment.num_tokens for segment in segments)
            if total != line.prompt_tokens:
                raise ValueError(f"texts have {total} tokens, prompt_tokens {line.prompt_tokens}")
            return tuple(segments)
        if line.hash_ids is not None and line.block_tokens is not None:
            return tuple(blocks(names, line.hash_ids, line.block_tokens, line.prompt_tokens))
        if line.prefix is not None and line.prefix_tokens is not None:
            shared = (Segment(names.of("prefix", line.prefix), line.prefix_tokens),)
            return self._beginning_with(shared, line.prompt_tokens, "prefix_tokens", 0)
        if before is not None:
            num_said = before.output.num_tokens
            if before.max_tokens is not None:
                num_said = min(num_said, before.max_tokens)
            said = (*before.prompt, Segment(before.output.name, num_said))
            return self._beginning_with(said, line.prompt_tokens, "all that was said before", 1)
        return (Segment(names.fresh(), line.prompt_tokens),)

    def _beginning_with(
        self, known: tuple[Segment, ...], num_tokens: int, what: str, least: int
    ) -> tuple[Segment, ...]:
        num_known = sum(segment.num_tokens for segment in known)
        rest = num_tokens - num_known
        if rest < least:
            raise ValueError(f"prompt_tokens {num_tokens} must hold the {num_known} of {what}")
        return (*known, Segment(self._names.fresh(), rest)) if rest else known

    def _output_name(self, line: _Line) -> int:
        if line.output_text is None:
            return self._names.fresh()
        return self._names.of("text", line.output_text)


def write_requests(workload: Workload, path: Path | str) -> int:
    """Writes what a run of the workload asks for; returns how many requests.

    Later turns follow their answers, as in the workload. Raises ValueError for a closed loop:
    what is asked there depends on who answers.
    """
    parts = workload.parts if isinstance(workload, Streams) else (workload,)
    if any(isinstance(p, Synthetic) and isinstance(p.arrivals, ClosedLoop) for p in parts):
        raise ValueError("a closed loop depends on who answers it and cannot be written to a file")
    count = 0

    def counted() -> Iterator[bytes]:
        nonlocal count
        for line in _written(workload.traffic()):
            count += 1
            yield json.dumps(line, separators=(",", ":"), ensure_ascii=False).encode()

    write_lines(Path(path), counted())
    return count


def _written(traffic: Traffic) -> Iterator[dict[str, Any]]:
    for request in traffic.arrivals():
        follow_ups = tuple(traffic.follow_up(request, request.arrival_ns))
        if not follow_ups:
            yield {"arrival_s": _seconds(request.arrival_ns), **_fields(request)}
            continue
        session = {"session": request.request_id}
        yield {"arrival_s": _seconds(request.arrival_ns), **_fields(request), **session}
        before = request
        while follow_ups:
            (after,) = follow_ups
            think = {"think_s": _seconds(after.arrival_ns - before.arrival_ns)}
            yield {**_fields(after), **session, **think}
            follow_ups, before = tuple(traffic.follow_up(after, after.arrival_ns)), after


def _fields(request: ClientRequest) -> dict[str, Any]:
    """All but when it comes. Texts have names: which of them others use is not known yet."""
    fields: dict[str, Any] = {
        "prompt_tokens": request.num_prompt_tokens,
        "output_tokens": request.output.num_tokens,
        "request_id": request.request_id,
        "texts": request.prompt,
        "output_text": request.output.name,
    }
    for name in ("max_tokens", "tenant", "adapter", "priority"):
        if value := getattr(request, name):
            fields[name] = value
    deadline_ns = request.deadline_ns
    for name, value_ns in (
        ("leaves_after_s", request.leaves_after_ns),
        ("max_queue_s", request.max_queue_ns),
        ("deadline_s", None if deadline_ns is None else deadline_ns - request.arrival_ns),
    ):
        if value_ns is not None:
            fields[name] = _seconds(value_ns)
    return fields


def _seconds(time_ns: int) -> float:
    """Reads back as the same nanosecond up to 104 days, where floats become too coarse."""
    return time_ns / SECOND


def _or_none(seconds: float | None) -> int | None:
    return None if seconds is None else nanoseconds(seconds)
