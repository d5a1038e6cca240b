"""A workload as an inbox: requests come when they are due, and time jumps to the next."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator
from collections.abc import Sequence as SequenceOf

from headway.core.events import Aborted, Advanced, Event, Rejected, Retired
from headway.drive.clock import VirtualClock
from headway.drive.ports import Command, Submit, Withdraw
from headway.simulator.script import Script


class Source:
    """Scripts in order of arrival, and those that follow from the end of others."""

    def __init__(
        self, scripts: Iterator[Script], follow_up: Callable[[Script, int], SequenceOf[Script]]
    ) -> None:
        self._scripts = scripts
        self._follow_up = follow_up
        self._next = next(scripts, None)
        self._later: list[tuple[int, int, Script]] = []
        self._num_later = 0

    def next_ns(self) -> int | None:
        """When the next request arrives, as things are."""
        times = [self._later[0][0]] if self._later else []
        if self._next is not None:
            times.append(self._next.request.arrival_ns)
        return min(times, default=None)

    def take(self, now_ns: int) -> list[Script]:
        """All that have arrived. Raises ValueError for arrivals that are not in order."""
        due: list[Script] = []
        while (at_ns := self.next_ns()) is not None and at_ns <= now_ns:
            if self._later and self._later[0][0] == at_ns:
                due.append(heapq.heappop(self._later)[2])
            elif self._next is not None:
                due.append(self._next)
                self._next = next(self._scripts, None)
                self._check_order(at_ns)
        return due

    def _check_order(self, at_ns: int) -> None:
        if self._next is not None and (then_ns := self._next.request.arrival_ns) < at_ns:
            name = self._next.request.request_id
            raise ValueError(f"request {name!r} arrives at {then_ns} ns, after one at {at_ns} ns")

    def ended(self, script: Script, now_ns: int) -> None:
        for following in self._follow_up(script, now_ns):
            at_ns = following.request.arrival_ns
            heapq.heappush(self._later, (at_ns, self._num_later, following))
            self._num_later += 1


class WorkloadInbox:
    """Inbox and Listener. Knows the script of every request that has arrived and not ended."""

    def __init__(self, clock: VirtualClock, source: Source) -> None:
        self._clock = clock
        self._source = source
        self._scripts: dict[str, tuple[Script, int]] = {}  # with the number of its live sequences
        self._leaving: list[tuple[int, str]] = []

    def script_of(self, request_id: str) -> Script:
        return self._scripts[request_id][0]

    def next_ns(self) -> int | None:
        """When something comes next, unless an end brings it; None for never."""
        while self._leaving and self._leaving[0][1] not in self._scripts:
            heapq.heappop(self._leaving)
        at_ns = self._source.next_ns()
        if self._leaving and (at_ns is None or self._leaving[0][0] < at_ns):
            at_ns = self._leaving[0][0]
        return at_ns

    def take(self) -> list[Command]:
        now_ns = self._clock.now_ns()
        at_ns = self.next_ns()
        if at_ns is None or at_ns > now_ns:
            return []
        commands: list[Command] = []
        for script in self._source.take(now_ns):
            request = script.request
            self._scripts[request.request_id] = (script, request.sampling.n)
            if script.leaves_ns is not None:
                heapq.heappush(self._leaving, (script.leaves_ns, request.request_id))
            commands.append(Submit(request))
        while self._leaving and self._leaving[0][0] <= now_ns:
            commands.append(Withdraw(heapq.heappop(self._leaving)[1]))
        return commands

    def wait(self, until_ns: int | None = None) -> bool:
        times = [at_ns for at_ns in (self.next_ns(), until_ns) if at_ns is not None]
        if not times:
            return False
        self._clock.advance_to(min(times))
        return True

    def on_events(self, events: SequenceOf[Event], now_ns: int) -> None:
        for event in events:
            if type(event) is Advanced:  # nearly all
                continue
            if isinstance(event, Retired | Aborted):
                script, num_live = self._scripts[event.request_id]
                if num_live > 1:
                    self._scripts[event.request_id] = (script, num_live - 1)
                    continue
            elif not isinstance(event, Rejected):
                continue
            script, _ = self._scripts.pop(event.request_id)
            self._source.ended(script, now_ns)
