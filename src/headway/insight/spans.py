"""The spans of whole requests, as a trace has them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headway.core.events import (
    Aborted,
    Admitted,
    Advanced,
    Event,
    Preempted,
    Queued,
    Rejected,
    Retired,
)
from headway.core.request import FinishReason, Request
from headway.insight.arrivals import Arrival, Arrivals
from headway.insight.cutter import ChunkRow, Cutter, Span, StepTimes
from headway.insight.deliveries import MAX_UNDELIVERED, is_withdrawn


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
    """Keeps the spans of one sequence, and what its events say of it."""

    def __init__(self, index: int, arrival_ns: int) -> None:
        self.trace = SequenceTrace(index)
        self._cutter = Cutter(arrival_ns, self.trace.spans.append)
        self.on_chunk: Callable[[StepTimes, ChunkRow], None] = self._cutter.on_chunk
        self.close: Callable[[int], None] = self._cutter.close

    def on_event(self, event: Event, now_ns: int) -> None:
        trace = self.trace
        match event:
            case Admitted():
                trace.admitted_ns = now_ns
                trace.num_cached_tokens = event.num_cached_tokens
            case Advanced():
                trace.first_token_ns = trace.first_token_ns or now_ns
                trace.last_token_ns = now_ns
                trace.num_output_tokens += len(event.token_ids)
            case Preempted():
                trace.num_preemptions = event.num_preemptions
            case Retired() | Aborted():
                trace.finish_reason = event.reason
                trace.detail = event.detail
        self._cutter.on_event(event, now_ns)


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
            cutter.close(end_ns)
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
            for cutter in track.cutters:
                cutter.close(now_ns)
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
