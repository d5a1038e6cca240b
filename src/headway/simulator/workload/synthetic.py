"""Workloads made of laws: who comes when, asks how much, and gets how much."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from headway.simulator.workload.arrivals import Arrivals, AtOnce, ClosedLoop
from headway.simulator.workload.base import ClientRequest, Segment
from headway.simulator.workload.clients import (
    NOT_DECLARED,
    Choice,
    Declared,
    Leaving,
    Prefixes,
    Turns,
)
from headway.simulator.workload.draws import Purpose, Uniforms
from headway.simulator.workload.lengths import LengthLaw
from headway.simulator.workload.sessions import Conversations, Session, SessionDraws
from headway.simulator.workload.waits import WaitLaw, nanoseconds

NO_TENANT: Choice[str] = Choice((("", 1.0),))
NO_ADAPTER: Choice[str] = Choice((("", 1.0),))
NO_PRIORITY: Choice[int] = Choice(((0, 1.0),))
MAX_SEED = 2**64 - 1
# So many requests of one client that end as they arrive, in a row, and it comes no more, unless
# their number is given: where none can be served no time passes, and no duration would be over.
MAX_IN_VAIN = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthetic:
    """Requests drawn from laws, the same for the same seed on every platform.

    `arrivals` says when sessions begin; without `turns` each is one request. It ends after
    `num_requests`, later turns among them, or before `duration_s`, whichever comes first.
    Lengths come from laws or, in order, from `conversations`. `max_queue_s` and `deadline_s` count
    from each request's arrival.
    """

    arrivals: Arrivals
    prompt_tokens: LengthLaw | None = None
    output_tokens: LengthLaw | None = None
    conversations: Conversations | None = None
    num_requests: int | None = None
    duration_s: float | None = None
    seed: int = 0
    max_tokens: Declared = NOT_DECLARED
    prefixes: Prefixes | None = None
    turns: Turns | None = None
    tenants: Choice[str] = NO_TENANT
    adapters: Choice[str] = NO_ADAPTER
    priorities: Choice[int] = NO_PRIORITY
    leaving: Leaving | None = None
    max_queue_s: float | None = None
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        self._check_lengths()
        if self.num_requests is not None and self.num_requests < 1:
            raise ValueError(f"num_requests is at least 1, got {self.num_requests}")
        if not 0 <= self.seed <= MAX_SEED:
            raise ValueError(f"seed is between 0 and {MAX_SEED}, got {self.seed}")
        for name in ("duration_s", "max_queue_s", "deadline_s"):
            seconds = getattr(self, name)
            if seconds is not None and not 0 < seconds < math.inf:
                raise ValueError(f"{name} is above 0, got {seconds}")
        counted = self.num_requests is not None or self.conversations is not None
        if not counted and (self.duration_s is None or isinstance(self.arrivals, AtOnce)):
            raise ValueError("say when it ends: num_requests, or duration_s with timed arrivals")

    def _check_lengths(self) -> None:
        laws = (self.prompt_tokens, self.output_tokens)
        if self.conversations is None and None in laws:
            raise ValueError("prompt_tokens and output_tokens are needed, or conversations")
        if self.conversations is not None and (*laws, self.turns) != (None, None, None):
            raise ValueError("conversations have prompt_tokens, output_tokens and turns already")

    @property
    def think(self) -> WaitLaw | None:
        """Between the turns of a session; None where sessions have one turn."""
        given = self.turns or self.conversations
        return None if given is None else given.think

    @property
    def closed_loop_think(self) -> WaitLaw | None:
        return self.arrivals.think if isinstance(self.arrivals, ClosedLoop) else None

    def traffic(self) -> SyntheticTraffic:
        return SyntheticTraffic(self)


class SyntheticTraffic:
    """One run of a synthetic workload, or of one of the `parts` of several."""

    def __init__(self, workload: Synthetic, part: int = 0, parts: int = 1) -> None:
        self._workload = workload
        self._id_prefix = f"{part}-" if parts > 1 else ""
        self._sessions = iter(SessionDraws(workload, part, parts))
        self._times = workload.arrivals.times_ns(Uniforms(workload.seed, part, Purpose.ARRIVAL))
        self._is_closed = isinstance(workload.arrivals, ClosedLoop)
        counted = workload.num_requests is not None or workload.conversations is not None
        self._max_in_vain = math.inf if counted else MAX_IN_VAIN
        self._end_ns = _or_none(workload.duration_s)
        self._max_queue_ns = _or_none(workload.max_queue_s)
        self._deadline_ns = _or_none(workload.deadline_s)
        self._open: dict[str, tuple[Session, int, int]] = {}  # what follows; and came in vain

    def arrivals(self) -> Iterator[ClientRequest]:
        """First turns, in order of arrival."""
        # A time without a session is of no use; a session without a time is the next one's.
        for at_ns in chain.from_iterable(self._times):
            request = self._begin(at_ns)
            if request is None:
                return
            yield request

    def follow_up(self, ended: ClientRequest, now_ns: int) -> Iterable[ClientRequest]:
        """The session's next turn; in a closed loop, after the last turn, the next session's first.

        A client that went away has no next turn. In a loop that only a duration ends, one that came
        MAX_IN_VAIN times in vain has no next session.
        """
        if ended.request_id not in self._open:
            return ()
        session, turn, in_vain = self._open.pop(ended.request_id)
        in_vain = in_vain + 1 if now_ns == ended.arrival_ns else 0
        if turn + 1 < session.num_turns and not _has_left(ended, now_ns):
            arrival_ns = now_ns + session.block.think_ns[session.first + turn + 1]
            if self._is_over(arrival_ns):
                return ()
            prompt = (*ended.prompt, _said(ended), session.words(turn + 1))
            return (self._request(session, turn + 1, arrival_ns, prompt, in_vain),)
        if not self._is_closed or in_vain >= self._max_in_vain:
            return ()
        request = self._begin(now_ns, thinks=True, in_vain=in_vain)
        return () if request is None else (request,)

    def _begin(self, at_ns: int, thinks: bool = False, in_vain: int = 0) -> ClientRequest | None:
        if self._is_over(at_ns):
            return None
        session = next(self._sessions, None)
        if session is None:
            return None
        if thinks:
            at_ns += session.block.pause_ns[session.row]
            if self._is_over(at_ns):
                return None
        words, prefix = session.words(0), session.prefix
        prompt = (words,) if prefix is None else (prefix, words)
        return self._request(session, 0, at_ns, prompt, in_vain)

    def _is_over(self, at_ns: int) -> bool:
        return self._end_ns is not None and at_ns >= self._end_ns

    def _request(
        self,
        session: Session,
        turn: int,
        arrival_ns: int,
        prompt: tuple[Segment, ...],
        in_vain: int,
    ) -> ClientRequest:
        block, row, index = session.block, session.row, session.first + turn
        name = f"{self._id_prefix}{session.number}"
        if session.num_turns > 1:
            name = f"{name}.{turn}"
        if self._is_closed or turn + 1 < session.num_turns:
            self._open[name] = (session, turn, in_vain)
        deadline_ns = self._deadline_ns
        return ClientRequest(
            request_id=name,
            arrival_ns=arrival_ns,
            prompt=prompt,
            output=session.output(turn),
            max_tokens=block.max_tokens[index],
            tenant=block.tenant[row],
            adapter=block.adapter[row],
            priority=block.priority[row],
            leaves_after_ns=block.leaves_after_ns[index],
            max_queue_ns=self._max_queue_ns,
            deadline_ns=None if deadline_ns is None else arrival_ns + deadline_ns,
        )


@dataclass(frozen=True, slots=True)
class Streams:
    """Several synthetic workloads at once, say tenants with rates and lengths of their own.

    Each draws from streams of its own, also where their seeds are equal, and shares no text with
    the others. Request ids begin with the number of the stream.
    """

    parts: tuple[Synthetic, ...]

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError("streams: at least one is needed")

    def traffic(self) -> _StreamsTraffic:
        return _StreamsTraffic(self.parts)


class _StreamsTraffic:
    def __init__(self, parts: tuple[Synthetic, ...]) -> None:
        self._parts = [SyntheticTraffic(part, i, len(parts)) for i, part in enumerate(parts)]

    def arrivals(self) -> Iterator[ClientRequest]:
        """In order of arrival; of equal times the first stream's first."""
        return heapq.merge(
            *(part.arrivals() for part in self._parts), key=lambda request: request.arrival_ns
        )

    def follow_up(self, ended: ClientRequest, now_ns: int) -> Iterable[ClientRequest]:
        part = int(ended.request_id.partition("-")[0]) if len(self._parts) > 1 else 0
        return self._parts[part].follow_up(ended, now_ns)


def _said(ended: ClientRequest) -> Segment:
    """The output as far as the declared max_tokens lets it come."""
    name, num_tokens = ended.output
    if ended.max_tokens is not None:
        num_tokens = min(num_tokens, ended.max_tokens)
    return Segment(name, num_tokens)


def _has_left(ended: ClientRequest, now_ns: int) -> bool:
    left = ended.leaves_after_ns
    return left is not None and now_ns - ended.arrival_ns >= left


def _or_none(seconds: float | None) -> int | None:
    return None if seconds is None else nanoseconds(seconds)
