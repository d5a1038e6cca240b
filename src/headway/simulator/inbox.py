"""A workload as an inbox: requests come when they are due, and time jumps to the next."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator
from collections.abc import Sequence as SequenceOf

from headway.core.events import Aborted, Advanced, Event, Queued, Rejected, Retired
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
        """Take what follows. Raises ValueError for what arrives before the end that it follows."""
        for following in self._follow_up(script, now_ns):
            at_ns = following.request.arrival_ns
            if at_ns < now_ns:
                name, first = following.request.request_id, script.request.request_id
                raise ValueError(
                    f"request {name!r} follows {first!r}, which ends at {now_ns} ns, "
                    f"and cannot arrive at {at_ns} ns"
                )
            heapq.heappush(self._later, (at_ns, self._num_later, following))
            self._num_later += 1


class WorkloadInbox:
    """Inbox and Listener. Knows the script of every request that was queued and has not ended.

    It must hear of events before whoever asks it about them.
    """

    def __init__(self, clock: VirtualClock, source: Source) -> None:
        self._clock = clock
        self._source = source
        self._asked: deque[Script] = deque()  # not answered yet, in order
        self._scripts: dict[str, Script] = {}
        self._num_left: dict[str, int] = {}  # live sequences, of requests for several
        self._ended: list[str] = []  # known until the next events
        self._leaving: list[tuple[int, int, Script]] = []
        self._num_leaving = 0

    def script_of(self, request_id: str) -> Script:
        return self._scripts[request_id]

    def next_ns(self) -> int | None:
        """When something comes next, unless an end brings it; None for never."""
        self._forget_ended()
        while self._leaving and self._is_gone(self._leaving[0][2]):
            heapq.heappop(self._leaving)
        at_ns = self._source.next_ns()
        if self._leaving and (at_ns is None or self._leaving[0][0] < at_ns):
            at_ns = self._leaving[0][0]
        return at_ns

    def _is_gone(self, script: Script) -> bool:
        return self._scripts.get(script.request.request_id) is not script

    def take(self) -> list[Command]:
        now_ns = self._clock.now_ns()
        at_ns = self.next_ns()
        if at_ns is None or at_ns > now_ns:
            return []
        commands: list[Command] = []
        left: list[str] = []
        for script in self._source.take(now_ns):
            self._asked.append(script)
            commands.append(Submit(script.request))
            leaves_ns, name = script.leaves_ns, script.request.request_id
            if leaves_ns is None or name in self._scripts:
                continue  # one whose id is in use will be refused
            if leaves_ns <= now_ns:
                left.append(name)
            else:
                heapq.heappush(self._leaving, (leaves_ns, self._num_leaving, script))
                self._num_leaving += 1
        while self._leaving and self._leaving[0][0] <= now_ns:
            script = heapq.heappop(self._leaving)[2]
            if not self._is_gone(script):
                commands.append(Withdraw(script.request.request_id))
        return commands + [Withdraw(name) for name in left]

    def wait(self, until_ns: int | None = None) -> bool:
        times = [at_ns for at_ns in (self.next_ns(), until_ns) if at_ns is not None]
        if not times:
            return False
        self._clock.advance_to(min(times))
        return True

    def on_events(self, events: SequenceOf[Event], now_ns: int) -> None:
        self._forget_ended()
        for event in events:
            if type(event) is Advanced:  # nearly all
                continue
            if isinstance(event, Retired | Aborted):
                self._end(event.request_id, now_ns)
            elif isinstance(event, Queued) and event.index == 0:
                self._accept(event.request_id)
            elif isinstance(event, Rejected):
                self._source.ended(self._asked.popleft(), now_ns)

    def _accept(self, request_id: str) -> None:
        script = self._asked.popleft()
        self._scripts[request_id] = script
        if script.request.sampling.n > 1:
            self._num_left[request_id] = script.request.sampling.n

    def _end(self, request_id: str, now_ns: int) -> None:
        num_left = self._num_left.pop(request_id, 1) - 1
        if num_left:
            self._num_left[request_id] = num_left
            return
        self._ended.append(request_id)
        self._source.ended(self._scripts[request_id], now_ns)

    def _forget_ended(self) -> None:
        for request_id in self._ended:
            del self._scripts[request_id]
        self._ended.clear()
