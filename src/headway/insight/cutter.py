"""One sequence's time cut into spans that leave nothing out; a fold over its events and chunks.

    arrival                                                                 delivered
    | queue | prefill | prefill_wait | prefill | decode | preempted | ... | delivery |

One chunk is one prefill span, or a recompute span after a preemption; the time between two chunks,
in which others were computed, is named so. Spans follow each other without a gap, so their
durations add up to the end-to-end time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from headway.core.events import Aborted, Admitted, Advanced, Event, Preempted, Resumed, Retired

QUEUE, PREFILL, DECODE = "queue", "prefill", "decode"
PREEMPTED, RECOMPUTE, DELIVERY = "preempted", "recompute", "delivery"
WAIT = "_wait"  # behind the name of a phase: others were computed
ChunkRow = tuple[int, int, int]  # sequence id, first position, tokens


class StepTimes(Protocol):
    """When a step ran and for whom; `wire.StepTrace` is one. Decodes need not be in `chunks`."""

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


class Cutter:
    """Tells `on_span` of each span when it is over; none has no length.

    The latest chunk is told late: what the engine does between its end and telling so belongs to it
    where it was the last.
    """

    def __init__(self, arrival_ns: int, on_span: Callable[[Span], None]) -> None:
        self.phase = QUEUE
        self.is_closed = False
        self._on_span = on_span
        self._cursor_ns = arrival_ns
        self._num_lost_tokens = 0
        self._chunk: Span | None = None  # the latest of this phase

    def on_chunk(self, step: StepTimes, chunk: ChunkRow) -> None:
        """A step that computed part of the sequence."""
        if self.is_closed or self.phase not in (PREFILL, RECOMPUTE):
            return
        _, first_position, num_tokens = chunk
        name = RECOMPUTE if first_position < self._num_lost_tokens else PREFILL
        self._let_go()
        self._cut(name + WAIT, step.start_ns)
        if step.end_ns > self._cursor_ns:
            attributes = {
                "step": step.index,
                "first_position": first_position,
                "tokens": num_tokens,
            }
            self._chunk = Span(name, self._cursor_ns, step.end_ns, attributes)

    def on_event(self, event: Event, now_ns: int) -> None:
        if self.is_closed:
            return
        match event:
            case Advanced():
                if self.phase in (PREFILL, RECOMPUTE):
                    self._stretch_chunk(now_ns)
                    self._enter(DECODE, now_ns)
            case Admitted():
                self._enter(PREFILL, now_ns, {"cached_tokens": event.num_cached_tokens})
            case Preempted():
                self._num_lost_tokens = event.num_lost_tokens
                self._enter(PREEMPTED, now_ns)
            case Resumed():
                self._enter(RECOMPUTE, now_ns, self._bill(event))
            case Retired() | Aborted():
                self._enter(DELIVERY, now_ns)

    def close(self, now_ns: int) -> None:
        """The answer left at `now_ns`: what the engine does later is not the client's time."""
        if self.is_closed:
            return
        for span in self.under_way(now_ns):
            self._on_span(span)
        self.is_closed = True

    def under_way(self, now_ns: int) -> list[Span]:
        """The spans that `close` would tell."""
        spans, cursor_ns = [], self._cursor_ns
        name = self.phase
        if self._chunk is not None:
            cursor_ns = min(self._chunk.end_ns, max(now_ns, cursor_ns))
            name += WAIT
            chunk = self._chunk
            spans = [Span(chunk.name, chunk.start_ns, cursor_ns, chunk.attributes)]
        if now_ns > cursor_ns:
            spans.append(Span(name, cursor_ns, now_ns))
        return spans

    def _stretch_chunk(self, now_ns: int) -> None:
        chunk = self._chunk
        if chunk is not None:
            self._chunk = Span(chunk.name, chunk.start_ns, now_ns, chunk.attributes)

    def _bill(self, event: Resumed) -> dict[str, int | str]:
        return {
            "lost_tokens": self._num_lost_tokens,
            "refunded_tokens": self._num_lost_tokens - event.num_recomputed_tokens,
        }

    def _enter(
        self, phase: str, now_ns: int, attributes: Mapping[str, int | str] | None = None
    ) -> None:
        """End the phase, which gets the attributes, and begin another."""
        name = self.phase if self._chunk is None else self.phase + WAIT
        self._let_go()
        self._cut(name, now_ns, attributes)
        self.phase = phase

    def _let_go(self) -> None:
        """Tell of the chunk that was held back."""
        if self._chunk is not None:
            chunk, self._chunk = self._chunk, None
            self._cursor_ns = chunk.end_ns
            self._on_span(chunk)

    def _cut(
        self, name: str, end_ns: int, attributes: Mapping[str, int | str] | None = None
    ) -> None:
        """From where the last span ended; nothing for no time."""
        if end_ns > self._cursor_ns:
            self._on_span(Span(name, self._cursor_ns, end_ns, attributes or {}))
            self._cursor_ns = end_ns
