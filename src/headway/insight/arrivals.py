"""Which submitted request an engine's sequence belongs to."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from headway.core.events import Queued
from headway.core.request import Request


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """A request, when it came, in nanoseconds, and what its fold wants to remember with it."""

    request: Request
    arrival_ns: int
    origin: object = None


class Arrivals:
    """Joins `Queued` to what was submitted, for every fold that wants to know both.

    An id may be submitted again while it lives, by mistake or just after it ended; the engine
    answers in order of submission, so the oldest of an id is the one that an answer is about.
    """

    def __init__(self) -> None:
        self._submitted: dict[str, deque[Arrival]] = {}
        self._opened: dict[str, Arrival] = {}  # some of the n sequences are queued, not all

    def __len__(self) -> int:
        return len(self._submitted) + len(self._opened)

    def submit(self, request: Request, now_ns: int, origin: object = None) -> None:
        arrival = Arrival(request, request.arrival_ns or now_ns, origin)
        self._submitted.setdefault(request.request_id, deque()).append(arrival)

    def queued(self, event: Queued) -> Arrival | None:
        """None: nobody here asked for it, or the engine that says so has been declared dead."""
        if event.index == 0:
            arrival = self.answered(event.request_id)
            if arrival is not None and arrival.request.sampling.n > 1:
                self._opened[event.request_id] = arrival
            return arrival
        arrival = self._opened.get(event.request_id)
        if arrival is not None and event.index == arrival.request.sampling.n - 1:
            del self._opened[event.request_id]
        return arrival

    def answered(self, request_id: str) -> Arrival | None:
        """The oldest of this id that was not queued; it is forgotten here."""
        same_id = self._submitted.get(request_id)
        if same_id is None:
            return None
        arrival = same_id.popleft()
        if not same_id:
            del self._submitted[request_id]
        return arrival
