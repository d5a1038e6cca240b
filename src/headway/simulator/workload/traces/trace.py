"""A file of requests as a workload: its rows, and the part of its time that is wanted."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from headway.simulator.workload.base import MAX_NAME, ClientRequest, Segment
from headway.simulator.workload.waits import LATEST_NS, MAX_SECONDS, SECOND, nanoseconds


class Row(NamedTuple):
    """A request of a file; `arrival_ns` on the file's own clock, all other times from arrival.

    `later`: turns that follow its answer, each `think_ns` after the one before; their
    `arrival_ns` means nothing.
    """

    request_id: str
    arrival_ns: int
    prompt: tuple[Segment, ...]
    output: Segment
    max_tokens: int | None = None
    tenant: str = ""
    adapter: str = ""
    priority: int = 0
    leaves_after_ns: int | None = None
    max_queue_ns: int | None = None
    deadline_ns: int | None = None
    think_ns: int = 0
    later: tuple[Row, ...] = ()


@dataclass(frozen=True, slots=True)
class Window:
    """Which requests of a file, and how fast.

    Those from `start_s` on and before `stop_s` on the file's clock, of these the `first` N, with
    what follows their answers. Time begins at `start_s` and is stretched by `time_scale`, or so
    that the mean rate of arrivals is `rate`. Pauses, patience and deadlines stay as they are.
    """

    first: int | None = None
    start_s: float = 0.0
    stop_s: float | None = None
    time_scale: float = 1.0
    rate: float | None = None

    def __post_init__(self) -> None:
        if self.first is not None and self.first < 1:
            raise ValueError(f"first: at least 1, got {self.first}")
        if not 0 <= self.start_s < (math.inf if self.stop_s is None else self.stop_s):
            raise ValueError(f"start_s: from 0 to before stop_s, got {self.start_s}")
        for name in ("start_s", "stop_s"):
            if (getattr(self, name) or 0) > MAX_SECONDS:
                raise ValueError(f"{name}: at most 1e9 seconds, got {getattr(self, name)}")
        if not 0 <= self.time_scale <= 1e9:
            raise ValueError(f"time_scale: from 0 to 1e9, got {self.time_scale}")
        if self.rate is not None and not 0 < self.rate <= 1e9:
            raise ValueError(f"rate: above 0 and at most 1e9 per second, got {self.rate}")
        if self.rate is not None and self.time_scale != 1:
            raise ValueError("rate: time_scale is given too; say one of them")

    def of(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The rows that are wanted; they come in order of arrival."""
        start_ns = nanoseconds(self.start_s)
        stop_ns = None if self.stop_s is None else nanoseconds(self.stop_s)
        left = self.first
        for row in rows:
            if row.arrival_ns < start_ns:
                continue
            if left == 0 or (stop_ns is not None and row.arrival_ns >= stop_ns):
                return
            if left is not None:
                left -= 1
            yield row


@dataclass(frozen=True, slots=True)
class TraceFile:
    """Requests from a file, read as they are asked for, again for each run.

    `notes`: what was left out or taken for granted, in sentences. Running it raises ValueError
    with file and line where the file is not what it should be.
    """

    path: Path
    format: str
    rows: Callable[[], Iterator[Row]] = field(compare=False, repr=False)
    window: Window = Window()
    notes: tuple[str, ...] = ()

    def traffic(self) -> TraceTraffic:
        return TraceTraffic(self)

    def scale(self) -> float:
        """By how much time is stretched. Reads the file where a rate is wanted."""
        if self.window.rate is None:
            return self.window.time_scale
        first = last = count = 0
        for row in self.window.of(self.rows()):
            first = row.arrival_ns if count == 0 else first
            last = row.arrival_ns
            count += 1
        if last == first:
            raise ValueError(f"{self.path}: rate: all requests come at once, there is no rate")
        return (count - 1) * SECOND / (last - first) / self.window.rate


class TraceTraffic:
    """One run of a file."""

    def __init__(self, trace: TraceFile) -> None:
        self._trace = trace
        self._later: dict[str, tuple[Row, ...]] = {}

    def arrivals(self) -> Iterator[ClientRequest]:
        trace, scale = self._trace, self._trace.scale()
        start_ns = nanoseconds(trace.window.start_s)
        is_empty = True
        for row in trace.window.of(trace.rows()):
            is_empty = False
            since_ns = row.arrival_ns - start_ns
            since_ns = since_ns if scale == 1 else round(since_ns * scale)
            if since_ns > LATEST_NS:
                raise ValueError(
                    f"{trace.path}: time stretched by {scale:g} puts arrivals more than 146 years "
                    "after the start: stretch it less"
                )
            yield self._request(row, since_ns)
        if is_empty:
            raise ValueError(f"{trace.path}: has no requests, or none in the time that is wanted")

    def follow_up(self, ended: ClientRequest, now_ns: int) -> Iterable[ClientRequest]:
        later = self._later.pop(ended.request_id, ())
        left = ended.leaves_after_ns
        if not later or (left is not None and now_ns - ended.arrival_ns >= left):
            return ()
        row = later[0]._replace(later=later[1:])
        return (self._request(row, now_ns + row.think_ns),)

    def _request(self, row: Row, arrival_ns: int) -> ClientRequest:
        if row.later:
            self._later[row.request_id] = row.later
        deadline_ns = row.deadline_ns
        return ClientRequest(
            request_id=row.request_id,
            arrival_ns=arrival_ns,
            prompt=row.prompt,
            output=row.output,
            max_tokens=row.max_tokens,
            tenant=row.tenant,
            adapter=row.adapter,
            priority=row.priority,
            leaves_after_ns=row.leaves_after_ns,
            max_queue_ns=row.max_queue_ns,
            deadline_ns=None if deadline_ns is None else arrival_ns + deadline_ns,
        )


class Names:
    """Gives texts their names: a new one each time, or the same for what a file calls the same."""

    def __init__(self) -> None:
        self._next = 0
        self._known: dict[tuple[str, str | int], int] = {}

    def fresh(self) -> int:
        name = self._next
        if name > MAX_NAME:
            raise ValueError("more texts than there are names for: take fewer requests")
        self._next = name + 1
        return name

    def of(self, kind: str, called: str | int) -> int:
        """One name for equal `called` of the same kind."""
        name = self._known.get((kind, called))
        if name is None:
            name = self._known[kind, called] = self.fresh()
        return name


def blocks(names: Names, ids: Iterable[str | int], size: int, num_tokens: int) -> list[Segment]:
    """A prompt whose leading blocks of `size` tokens have ids; behind them it is its own text.

    The last block may be short. Raises ValueError if there are more ids than blocks.
    """
    segments: list[Segment] = []
    left = num_tokens
    for called in ids:
        if left <= 0:
            raise ValueError(f"more hash_ids than {num_tokens} tokens have blocks of {size}")
        segments.append(Segment(names.of("block", called), min(size, left)))
        left -= size
    if left > 0:
        segments.append(Segment(names.fresh(), left))
    return segments
