"""What one request went through, as times; a fold over the engine's events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

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
from headway.core.request import Request
from headway.insight.arrivals import Arrival, Arrivals
from headway.insight.deliveries import MAX_UNDELIVERED, is_withdrawn
from headway.simulator.bill import PreemptionBill

_MS = 1e6


class WaitingStats(Protocol):
    """How many wait for what, by Blocker value; `wire.EngineStats` is one."""

    @property
    def waiting_reasons(self) -> Mapping[str, int]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTimings:
    """Nanoseconds; of n sequences the first token is the earliest, the queue time the longest."""

    queue_ns: int | None = None  # None: never admitted
    time_to_first_token_ns: int | None = None
    generation_ns: int | None = None  # first token to last
    mean_itl_ns: int | None = None
    num_output_tokens: int = 0
    num_preemptions: int = 0
    num_recomputed_tokens: int = 0
    num_refunded_tokens: int = 0  # lost to preemptions, found in the prefix cache again
    preempted_ns: int = 0  # of the sequence that lost most: evictions to the tokens after them
    blocked_ns: Mapping[str, int] = field(default_factory=dict)  # by Blocker value, while queued


def metrics_body(timings: RequestTimings) -> dict[str, Any]:
    """The `metrics` object of an answer: vLLM's fields and ours; null where there is no figure."""
    generation_ns = timings.generation_ns
    num_later = timings.num_output_tokens - 1
    return {
        "time_to_first_token_ms": _ms(timings.time_to_first_token_ns),
        "generation_time_ms": _ms(generation_ns),
        "queue_time_ms": _ms(timings.queue_ns),
        "mean_itl_ms": _ms(timings.mean_itl_ns),
        "tokens_per_second": num_later * 1e9 / generation_ns if generation_ns else None,
        "preemptions": timings.num_preemptions,
        "recomputed_tokens": timings.num_recomputed_tokens,
        "refunded_tokens": timings.num_refunded_tokens,
        "preempted_ms": timings.preempted_ns / _MS,
        "blocked_ms": {reason: ns / _MS for reason, ns in timings.blocked_ns.items()},
    }


def _ms(ns: int | None) -> float | None:
    return None if ns is None else ns / _MS


@dataclass(slots=True, eq=False)
class _Life:
    """One sequence; 0 ns: not yet."""

    arrival: Arrival
    waited_before: dict[str, int]
    blocked_ns: Mapping[str, int] = field(default_factory=dict)
    admitted_ns: int = 0
    first_token_ns: int = 0
    last_token_ns: int = 0
    num_output_tokens: int = 0
    bill: PreemptionBill = field(default_factory=PreemptionBill)


@dataclass(slots=True, eq=False)
class _Track:
    """The sequences of one request; `num_left` of them have not ended."""

    request: Request
    num_left: int
    is_delivered: bool = False
    lives: list[_Life] = field(default_factory=list)


class Timelines:
    """Keeps a request's times until they are delivered; one thread.

    What a withdrawn request went through is forgotten at once, as is that of a refused one.
    `on_delivered` is told what `delivered` was told.
    """

    def __init__(
        self, on_delivered: Callable[[Sequence[Request], int], None] = lambda requests, now_ns: None
    ) -> None:
        self._on_delivered = on_delivered
        self._arrivals = Arrivals()
        self._tracks: dict[str, _Track] = {}
        self._lives: dict[int, _Life] = {}
        self._ended: dict[str, None] = {}  # in order of ending
        self._waited: dict[str, int] = {}  # by reason: the integral of its share of the queue
        self._reasons: Mapping[str, int] = {}
        self._now_ns = 0

    def __len__(self) -> int:
        """Everything that is remembered."""
        return len(self._arrivals) + len(self._tracks) + len(self._lives) + len(self._ended)

    def on_submitted(self, request: Request, now_ns: int) -> None:
        self._arrivals.submit(request, now_ns)

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        self._wait_until(now_ns)
        for event in events:
            self._fold(event, now_ns)

    def on_stats(self, stats: WaitingStats) -> None:
        self._reasons = stats.waiting_reasons

    def take(self, requests: Sequence[Request]) -> RequestTimings | None:
        """Of the requests of one body together. None when nothing is known of any of them."""
        tracks = self._tracks_of(requests)
        return _timings([life for track in tracks for life in track.lives]) if tracks else None

    def delivered(self, requests: Sequence[Request], now_ns: int) -> None:
        """The last byte of the answer was handed over; nobody will ask for its times again."""
        for track in self._tracks_of(requests):
            track.is_delivered = True
            if not track.num_left:  # else a stop string: the engine has yet to say so
                self._forget(track.request.request_id)
        self._on_delivered(requests, now_ns)

    def _tracks_of(self, requests: Sequence[Request]) -> list[_Track]:
        """Those of these very requests: an id may have been taken by a newer one."""
        found = [self._tracks.get(request.request_id) for request in requests]
        pairs = zip(found, requests, strict=True)
        return [track for track, request in pairs if track and track.request is request]

    def _wait_until(self, now_ns: int) -> None:
        """Whoever waited since the last turn did so for each reason by its share of the queue."""
        num_waiting = sum(self._reasons.values())
        for reason, count in self._reasons.items():
            waited_ns = (now_ns - self._now_ns) * count // num_waiting if count else 0
            self._waited[reason] = self._waited.get(reason, 0) + waited_ns
        self._now_ns = now_ns

    def _fold(self, event: Event, now_ns: int) -> None:
        match event:
            case Queued():
                self._on_queued(event)
            case Rejected():
                self._arrivals.answered(event.request_id)
            case _ if life := self._lives.get(event.sequence_id):
                self._fold_life(life, event, now_ns)
            case Aborted():
                self._arrivals.answered(event.request_id)  # the engine died before it queued it

    def _on_queued(self, event: Queued) -> None:
        arrival = self._arrivals.queued(event)
        if arrival is None:
            return
        if event.index == 0:
            self._ended.pop(event.request_id, None)
            self._tracks[event.request_id] = _Track(arrival.request, arrival.request.sampling.n)
        life = _Life(arrival, dict(self._waited))
        self._lives[event.sequence_id] = life
        self._tracks[event.request_id].lives.append(life)

    def _fold_life(self, life: _Life, event: Event, now_ns: int) -> None:
        match event:
            case Admitted():
                life.admitted_ns = now_ns
                life.blocked_ns = _difference(self._waited, life.waited_before)
            case Resumed():
                life.bill.resumed(event)
            case Preempted():
                life.bill.preempted(event, now_ns)
            case Advanced():
                life.first_token_ns = life.first_token_ns or now_ns
                life.last_token_ns = now_ns
                life.bill.got_on(now_ns)
                life.num_output_tokens += len(event.token_ids)
            case Retired() | Aborted():
                life.bill.got_on(now_ns)
                self._on_ended(life, event)

    def _on_ended(self, life: _Life, event: Retired | Aborted) -> None:
        del self._lives[event.sequence_id]
        if not life.admitted_ns:
            life.blocked_ns = _difference(self._waited, life.waited_before)
        track = self._tracks.get(event.request_id)
        if track is None or life not in track.lives:
            return  # its id has been taken by a newer request
        track.num_left -= 1
        if track.num_left:
            return
        self._ended[event.request_id] = None
        if track.is_delivered or is_withdrawn(event):
            self._forget(event.request_id)
        elif len(self._ended) > MAX_UNDELIVERED:
            self._forget(next(iter(self._ended)))

    def _forget(self, request_id: str) -> None:
        del self._ended[request_id]
        del self._tracks[request_id]


def _difference(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    waited = {reason: ns - before.get(reason, 0) for reason, ns in now.items()}
    return {reason: ns for reason, ns in waited.items() if ns}


def _timings(lives: Sequence[_Life]) -> RequestTimings:
    begun = [life for life in lives if life.first_token_ns]
    slowest = max(lives, key=_queue_ns)
    num_gaps = sum(life.num_output_tokens - 1 for life in begun)
    gaps_ns = sum(life.last_token_ns - life.first_token_ns for life in begun)
    return RequestTimings(
        queue_ns=_queue_ns(slowest) if any(life.admitted_ns for life in lives) else None,
        time_to_first_token_ns=min(
            (life.first_token_ns - life.arrival.arrival_ns for life in begun), default=None
        ),
        generation_ns=_span_ns(begun),
        mean_itl_ns=gaps_ns // num_gaps if num_gaps else None,
        num_output_tokens=sum(life.num_output_tokens for life in lives),
        num_preemptions=sum(life.bill.num_preemptions for life in lives),
        num_recomputed_tokens=sum(life.bill.num_recomputed_tokens for life in lives),
        num_refunded_tokens=sum(life.bill.num_refunded_tokens for life in lives),
        preempted_ns=max(life.bill.lost_ns for life in lives),
        blocked_ns=slowest.blocked_ns,
    )


def _queue_ns(life: _Life) -> int:
    return life.admitted_ns - life.arrival.arrival_ns if life.admitted_ns else -1


def _span_ns(begun: Sequence[_Life]) -> int | None:
    if not begun:
        return None
    return max(life.last_token_ns for life in begun) - min(life.first_token_ns for life in begun)
