"""When to give a sequence up: the limits of its request as points in time."""

from __future__ import annotations

import heapq
from typing import NamedTuple

from headway.core.events import AbortCause
from headway.core.sequence import Sequence, SequenceStatus

_FEW = 64  # so many dead entries are never worth a rebuild


class Expiry(NamedTuple):
    """A sequence whose time is up, and why as a sentence."""

    sequence: Sequence
    cause: AbortCause
    detail: str


class _Entry(NamedTuple):
    due_ns: int
    serial: int  # makes the order total, so that sequences are never compared
    sequence: Sequence
    cause: AbortCause


class TimeKeeper:
    """A heap of points in time. `take_due` is O(1) while nothing is due.

    Each sequence has its own: a limit on the queue ends with its first admission, where the limit
    on its run begins; a deadline is the same point for all sequences of a request.
    """

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._num_pushed = 0
        self._limit_of_rebuild = _FEW

    def queued(self, sequence: Sequence) -> None:
        limits, arrival_ns = sequence.request.limits, sequence.request.arrival_ns
        if limits.max_queue_ns is not None:
            self._push(arrival_ns + limits.max_queue_ns, sequence, AbortCause.QUEUE_TIME)
        if limits.deadline_ns is not None:
            self._push(limits.deadline_ns, sequence, AbortCause.DEADLINE)

    def admitted(self, sequence: Sequence, now_ns: int) -> None:
        """For the first time: a preemption does not stop the clock."""
        max_run_ns = sequence.request.limits.max_run_ns
        if max_run_ns is not None:
            self._push(now_ns + max_run_ns, sequence, AbortCause.RUN_TIME)

    def next_due_ns(self) -> int | None:
        """When the next sequence is to be given up, as things are; None for never."""
        while self._heap and not _binds(self._heap[0]):
            heapq.heappop(self._heap)
        return self._heap[0].due_ns if self._heap else None

    def is_due(self, now_ns: int) -> bool:
        """Whether somebody may have to be given up."""
        return bool(self._heap) and self._heap[0].due_ns <= now_ns

    def take_due(self, now_ns: int) -> list[Expiry]:
        """Whose time is up: each sequence once, with the limit that was due first."""
        due: dict[int, Expiry] = {}
        while self.is_due(now_ns):
            entry = heapq.heappop(self._heap)
            sequence = entry.sequence
            if _binds(entry) and sequence.sequence_id not in due:
                detail = _sentence(entry, now_ns)
                due[sequence.sequence_id] = Expiry(sequence, entry.cause, detail)
        return list(due.values())

    def _push(self, due_ns: int, sequence: Sequence, cause: AbortCause) -> None:
        heapq.heappush(self._heap, _Entry(due_ns, self._num_pushed, sequence, cause))
        self._num_pushed += 1
        if len(self._heap) > self._limit_of_rebuild:
            # Sequences that ended leave entries behind that are due much later.
            self._heap = [entry for entry in self._heap if _binds(entry)]
            heapq.heapify(self._heap)
            self._limit_of_rebuild = 2 * len(self._heap) + _FEW


def _binds(entry: _Entry) -> bool:
    status = entry.sequence.status
    if entry.cause is AbortCause.QUEUE_TIME:
        return status is SequenceStatus.WAITING
    return status is not SequenceStatus.FINISHED


def _sentence(entry: _Entry, now_ns: int) -> str:
    request = entry.sequence.request
    limits = request.limits
    match entry.cause:
        case AbortCause.QUEUE_TIME:
            waited = _seconds(now_ns - request.arrival_ns)
            most = _seconds(limits.max_queue_ns or 0)
            return f"waited {waited} for its first step; the limit on the queue is {most}"
        case AbortCause.RUN_TIME:
            most_ns = limits.max_run_ns or 0
            ran = _seconds(most_ns + now_ns - entry.due_ns)
            return f"ran for {ran}; the limit on a run is {_seconds(most_ns)}"
        case _:
            arrived = _seconds(now_ns - request.arrival_ns)
            late = _seconds(now_ns - entry.due_ns)
            return f"its deadline passed {late} ago, it arrived {arrived} ago"


def _seconds(span_ns: int) -> str:
    return f"{span_ns / 1e9:.3g} s"
