"""A request's time cut into spans that leave nothing out.

    arrival                                                                 delivered
    | queue | prefill | prefill_wait | prefill | decode | preempted | ... | delivery |

One chunk is one prefill span, or a recompute span after a preemption; the time between two chunks,
in which others were computed, is named so. A sequence's spans follow each other without a gap, so
their durations add up to its end-to-end time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headway.core.events import (
    Aborted,
    Admitted,
    Advanced,
    Event,
    Preempted,
    Queued,
    Rejected,
    Resumed,
    Retired,
)
from headway.core.request import FinishReason, Request
from headway.insight.arrivals import Arrival, Arrivals
from headway.insight.deliveries import MAX_UNDELIVERED, is_withdrawn

QUEUE, PREFILL, DECODE = "queue", "prefill", "decode"
PREEMPTED, RECOMPUTE, DELIVERY = "preempted", "recompute", "delivery"
ChunkRow = tuple[int, int, int]  # sequence id, first position, tokens


class StepTimes(Protocol):
    """When a step ran and for whom; `wire.StepTrace` is one."""

    @property
    def index(self) -> int: ...
    @property
    def start_ns(self) -> int: ...
    @property
    def end_ns(self) -> int: ...
    @property
    def chunks(self) -> Sequence[ChunkRow]: ...


@dataclass(frozen=True, slots=True)
class Span:
    """Nanoseconds; `attributes` have plain values."""

    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, int | str] = field(default_factory=dict)

    @property
    def duration_ns(self) -> int:
        return self.end_ns - self.start_ns


@dataclass(slots=True, eq=False)
class SequenceTrace:
    """One sequence; 0 ns: never."""

    index: int
    spans: list[Span] = field(default_factory=list)
    num_cached_tokens: int = 0
    num_output_tokens: int = 0
    num_preemptions: int = 0
    admitted_ns: int = 0
    first_token_ns: int = 0
    last_token_ns: int = 0
    finish_reason: FinishReason | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class RequestTrace:
    """A request from its arrival to `end_ns`: delivered, or the last end of what was withdrawn.

    `origin` is what `on_submitted` was given.
    """

    request: Request
    arrival_ns: int
    end_ns: int
    sequences: Sequence[SequenceTrace]
    origin: object = None


class SpanCutter:
    """Cuts one sequence's time as its events and chunks come, in order."""

    def __init__(self, index: int, arrival_ns: int) -> None:
        self.trace = SequenceTrace(index)
        self._phase = QUEUE
        self._cursor_ns = arrival_ns
        self._num_lost_tokens = 0
        self._is_chunked = False  # a chunk was seen in this phase

    def on_chunk(self, step: StepTimes, chunk: ChunkRow) -> None:
        """A step that computed part of the sequence; decodes are not told one by one."""
        if self._phase not in (PREFILL, RECOMPUTE):
            return
        _, first_position, num_tokens = chunk
        name = RECOMPUTE if first_position < self._num_lost_tokens else PREFILL
        self._cut(f"{name}_wait", step.start_ns)
        attributes = {"step": step.index, "first_position": first_position, "tokens": num_tokens}
        self._cut(name, step.end_ns, attributes)
        self._is_chunked = True

    def on_event(self, event: Event, now_ns: int) -> None:
        match event:
            case Admitted():
                self.trace.admitted_ns = now_ns
                self.trace.num_cached_tokens = event.num_cached_tokens
                self._enter(PREFILL, now_ns, {"cached_tokens": event.num_cached_tokens})
            case Advanced():
                self._on_advanced(len(event.token_ids), now_ns)
            case Preempted():
                self._num_lost_tokens = event.num_lost_tokens
                self.trace.num_preemptions = event.num_preemptions
                self._enter(PREEMPTED, now_ns)
            case Resumed():
                self._enter(RECOMPUTE, now_ns, self._bill(event))
            case Retired() | Aborted():
                self.trace.finish_reason = event.reason
                self.trace.detail = event.detail
                self._enter(DELIVERY, now_ns)

    def deliver(self, now_ns: int) -> None:
        """The answer left at `now_ns`: what the engine did later is not the client's time."""
        self._cut(DELIVERY, now_ns)
        kept = [span for span in self.trace.spans if span.start_ns < now_ns]
        self.trace.spans = [
            span if span.end_ns <= now_ns else Span(span.name, span.start_ns, now_ns)
            for span in kept
        ]

    def _on_advanced(self, num_tokens: int, now_ns: int) -> None:
        trace = self.trace
        trace.first_token_ns = trace.first_token_ns or now_ns
        trace.last_token_ns = now_ns
        trace.num_output_tokens += num_tokens
        if self._phase in (PREFILL, RECOMPUTE):
            self._stretch_chunk(now_ns)
            self._enter(DECODE, now_ns)

    def _stretch_chunk(self, now_ns: int) -> None:
        """What the engine did between its last chunk's end and telling so belongs to the chunk."""
        if self._is_chunked:
            last = self.trace.spans.pop()
            self._cursor_ns = last.start_ns
            self._cut(last.name, now_ns, last.attributes)

    def _bill(self, event: Resumed) -> dict[str, int | str]:
        return {
            "lost_tokens": self._num_lost_tokens,
            "refunded_tokens": self._num_lost_tokens - event.num_recomputed_tokens,
        }

    def _enter(
        self, phase: str, now_ns: int, attributes: Mapping[str, int | str] | None = None
    ) -> None:
        """End the phase, which gets the attributes, and begin another."""
        name = f"{self._phase}_wait" if self._is_chunked else self._phase
        self._cut(name, now_ns, attributes)
        self._phase = phase
        self._is_chunked = False

    def _cut(
        self, name: str, end_ns: int, attributes: Mapping[str, int | str] | None = None
    ) -> None:
        """From where the last span ended; nothing for no time."""
        if end_ns > self._cursor_ns:
            self.trace.spans.append(Span(name, self._cursor_ns, end_ns, attributes or {}))
            self._cursor_ns = end_ns


@dataclass(slots=True, eq=False)
class _Track:
    """A request under way."""

    arrival: Arrival
    num_left: int
    cutters: list[SpanCutter] = field(default_factory=list)
    ended_ns: int = 0
    delivered_ns: int = 0

    def finish(self) -> RequestTrace:
        end_ns = self.delivered_ns or self.ended_ns
        for cutter in self.cutters:
            cutter.deliver(end_ns)
        traces = [cutter.trace for cutter in self.cutters]
        arrival = self.arrival
        return RequestTrace(arrival.request, arrival.arrival_ns, end_ns, traces, arrival.origin)


class Traces:
    """A fold that tells `on_finished` of every accepted request once, when it is over.

    Over is delivered, or withdrawn. `on_step` may be told or not: without it a prefill is one span.
    """

    def __init__(self, on_finished: Callable[[RequestTrace], None]) -> None:
        self._on_finished = on_finished
        self._arrivals = Arrivals()
        self._tracks: dict[str, _Track] = {}
        self._cutters: dict[int, tuple[_Track, SpanCutter]] = {}
        self._ended: dict[str, None] = {}  # in order of ending

    def __len__(self) -> int:
        """Everything that is remembered."""
        return len(self._arrivals) + len(self._tracks) + len(self._cutters) + len(self._ended)

    def on_submitted(self, request: Request, now_ns: int, origin: object = None) -> None:
        self._arrivals.submit(request, now_ns, origin)

    def on_step(self, step: StepTimes) -> None:
        """A step as it ran; told before the events of its outcome."""
        for chunk in step.chunks:
            if known := self._cutters.get(chunk[0]):
                known[1].on_chunk(step, chunk)

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        for event in events:
            self._fold(event, now_ns)

    def delivered(self, requests: Sequence[Request], now_ns: int) -> None:
        for request in requests:
            track = self._tracks.get(request.request_id)
            if track is None or track.arrival.request is not request:
                continue  # its id has been taken by a newer request
            track.delivered_ns = now_ns
            if not track.num_left:
                self._finish(request.request_id)

    def _fold(self, event: Event, now_ns: int) -> None:
        match event:
            case Queued():
                self._on_queued(event)
            case Rejected():
                self._arrivals.answered(event.request_id)
            case _ if known := self._cutters.get(event.sequence_id):
                track, cutter = known
                cutter.on_event(event, now_ns)
                if isinstance(event, Retired | Aborted):
                    self._on_ended(track, event, now_ns)

    def _on_queued(self, event: Queued) -> None:
        arrival = self._arrivals.queued(event)
        if arrival is None:
            return
        if event.index == 0:
            if event.request_id in self._ended:
                self._finish(event.request_id)  # its id is used again before it was delivered
            self._tracks[event.request_id] = _Track(arrival, arrival.request.sampling.n)
        track = self._tracks[event.request_id]
        cutter = SpanCutter(event.index, arrival.arrival_ns)
        track.cutters.append(cutter)
        self._cutters[event.sequence_id] = (track, cutter)

    def _on_ended(self, track: _Track, event: Retired | Aborted, now_ns: int) -> None:
        del self._cutters[event.sequence_id]
        track.num_left -= 1
        track.ended_ns = now_ns
        if track.num_left:
            return
        self._ended[event.request_id] = None
        if track.delivered_ns or is_withdrawn(event):
            self._finish(event.request_id)
        elif len(self._ended) > MAX_UNDELIVERED:
            self._finish(next(iter(self._ended)))

    def _finish(self, request_id: str) -> None:
        del self._ended[request_id]
        self._on_finished(self._tracks.pop(request_id).finish())
