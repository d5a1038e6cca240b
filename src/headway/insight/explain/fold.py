"""The fold that knows why requests took as long as they did: the same for engine and simulator."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Protocol

from headway.core.events import Aborted, Advanced, Event, Preempted, Queued, Rejected, Retired
from headway.core.policies.step_time import Load, num_attended
from headway.core.request import Request
from headway.core.step import Step
from headway.drive.ports import Command, Submit
from headway.drive.record import brief_of
from headway.insight.arrivals import Arrival, Arrivals
from headway.insight.cutter import StepTimes
from headway.insight.deliveries import MAX_UNDELIVERED, is_withdrawn
from headway.insight.explain.decode_time import LearnedDecodeTimes
from headway.insight.explain.life import Life, Pool
from headway.insight.explain.prompt_steps import PromptStep, PromptSteps
from headway.insight.explain.waits import TenantQueues

MOST_DEPARTED = 4096  # sequences that have left, whom others may have waited for


class BriefStep(StepTimes, Protocol):
    """A step as `drive/record.py:brief_of` has it; `wire.StepTrace` is one, too."""

    @property
    def num_decodes(self) -> int: ...
    @property
    def decode_attended(self) -> int: ...
    @property
    def blocker(self) -> str | None: ...


class DecodeTimes(Protocol):
    """How long steps take that only decode."""

    def learn(self, load: Load, span_ns: int) -> None: ...
    def decodes_ns(self, num_decodes: int, attended: int) -> int: ...


@dataclass(slots=True, eq=False)
class Account:
    """One request, under way or remembered. Nanoseconds; None: not yet."""

    request_id: str
    tenant: str
    num_prompt_tokens: int
    arrival_ns: int
    num_left: int  # sequences that have not ended
    request: Request | None  # while it is under way
    lives: list[Life] = field(default_factory=list)
    ended_ns: int | None = None  # its last sequence
    end_ns: int | None = None  # with its delivery

    def e2e_ns(self, now_ns: int) -> int:
        return (now_ns if self.end_ns is None else self.end_ns) - self.arrival_ns


class Explainer:
    """Tell it what was submitted, of each step and its events, and what was delivered. One thread.

    It remembers the latest `buffer` requests that are over, in bounded memory each, and all that
    are under way. `is_delivered_at_end`: nobody will say when an answer was delivered, as in a
    simulation. `on_finished` hears of each request when it is over.
    """

    def __init__(
        self,
        pool: Pool,
        *,
        buffer: int,
        decode_times: DecodeTimes | None = None,
        is_delivered_at_end: bool = False,
        on_finished: Callable[[Account], None] = lambda account: None,
    ) -> None:
        self.pool = pool
        self.steps = PromptSteps()
        self._buffer = buffer
        self._times: DecodeTimes = decode_times or LearnedDecodeTimes()
        self._is_delivered_at_end = is_delivered_at_end
        self._on_finished = on_finished
        self._arrivals = Arrivals()
        self._queues = TenantQueues(pool.max_tenant_seqs)
        self._lives: dict[int, Life] = {}
        self._accounts: dict[str, Account] = {}  # under way
        self._ended: dict[str, None] = {}  # of these, whose sequences have all ended, in order
        self._kept: dict[str, Account] = {}  # over, in order
        self._departed: deque[Life] = deque(maxlen=MOST_DEPARTED)

    def __len__(self) -> int:
        """What is under way."""
        return len(self._arrivals) + len(self._lives) + len(self._accounts) + len(self._ended)

    # ---- What it is told ----

    def on_commands(self, commands: Sequence[Command], now_ns: int) -> None:
        """By a loop that it follows, as `on_ran`; a server tells `on_submitted` and `on_step`."""
        for command in commands:
            if isinstance(command, Submit):
                self.on_submitted(command.request, now_ns)

    def on_ran(self, step: Step, start_ns: int, end_ns: int) -> None:
        self.on_step(brief_of(step, start_ns, end_ns))

    def on_submitted(self, request: Request, now_ns: int) -> None:
        self._arrivals.submit(request, now_ns)

    def on_stats(self, stats: object) -> None:
        """Nothing is learned from these."""

    def on_step(self, step: BriefStep) -> None:
        """A step as it ran; told before the events of its outcome."""
        self._queues.decided(step.blocker, step.start_ns)
        prompts: list[tuple[str, int]] = []
        num_tokens = attended = 0
        for chunk in step.chunks:
            sequence_id, first, count = chunk
            num_tokens += count
            attended += num_attended(first, count)
            if life := self._lives.get(sequence_id):
                life.on_chunk(step, chunk)
                prompts.append((life.request_id, count))
        self._weigh(
            step, Load(step.num_decodes, step.decode_attended, num_tokens, attended), prompts
        )

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        for event in events:
            if type(event) is Advanced:  # nearly all
                if life := self._lives.get(event.sequence_id):
                    life.on_advanced(event, now_ns)
            else:
                self._fold(event, now_ns)

    def delivered(self, requests: Sequence[Request], now_ns: int) -> None:
        """The last byte of the answer to these, which are of one body, was handed over."""
        for account in self.accounts_of(requests):
            account.end_ns = now_ns
            for life in account.lives:
                life.close(now_ns)
            if not account.num_left:  # else a stop string: the engine has yet to say so
                self._finish(account.request_id)

    # ---- What it knows ----

    def accounts_of(self, requests: Sequence[Request]) -> list[Account]:
        """Under way, of these very requests: an id may have been taken by a newer one."""
        found = [self._accounts.get(request.request_id) for request in requests]
        pairs = zip(found, requests, strict=True)
        return [account for account, request in pairs if account and account.request is request]

    def account(self, request_id: str) -> Account | None:
        """Under way or remembered; None for one that is neither."""
        return self._accounts.get(request_id) or self._kept.get(request_id)

    def under_way(self) -> list[Account]:
        return list(self._accounts.values())

    def slowest(self, number: int, now_ns: int, tenant: str | None = None) -> list[Account]:
        """Those that took, or have been under way, longest; of one tenant if that is named."""
        known = chain(self._kept.values(), self._accounts.values())
        asked = (a for a in known if tenant is None or a.tenant == tenant)
        return heapq.nlargest(number, asked, key=lambda account: account.e2e_ns(now_ns))

    def around(self, since_ns: int) -> Iterator[Life]:
        """Sequences that run, and those that left after this, the latest first."""
        yield from self._lives.values()
        for life in reversed(self._departed):
            if life.left_ns is not None and life.left_ns <= since_ns:
                return
            yield life

    # ---- Bookkeeping ----

    def _weigh(self, step: BriefStep, load: Load, prompts: list[tuple[str, int]]) -> None:
        """How much of the step is there because of its prompts."""
        span_ns = step.end_ns - step.start_ns
        if load.num_decodes or load.num_prefill_tokens:
            self._times.learn(load, span_ns)
        if not prompts:
            return
        alone_ns = 0
        if load.num_decodes:
            alone_ns = self._times.decodes_ns(load.num_decodes, load.decode_attended)
        stall_ns = span_ns - min(max(0, alone_ns), span_ns)
        self.steps.add(PromptStep(step.index, step.start_ns, step.end_ns, stall_ns, tuple(prompts)))

    def _fold(self, event: Event, now_ns: int) -> None:
        match event:
            case Queued():
                self._on_queued(event, now_ns)
            case Rejected():
                self._arrivals.answered(event.request_id)
            case _ if life := self._lives.get(event.sequence_id):
                self._fold_life(life, event, now_ns)
            case Aborted():
                self._arrivals.answered(event.request_id)  # the engine died before it queued it

    def _on_queued(self, event: Queued, now_ns: int) -> None:
        arrival = self._arrivals.queued(event)
        if arrival is None:
            return
        if event.index == 0:
            if event.request_id in self._ended:
                self._finish(event.request_id)  # its id is used again before it was delivered
            self._accounts[event.request_id] = _account(arrival)
        account = self._accounts[event.request_id]
        life = Life(event, arrival.request, arrival.arrival_ns, self._queues, self.steps, self.pool)
        life.queued(now_ns)
        account.lives.append(life)
        self._lives[event.sequence_id] = life

    def _fold_life(self, life: Life, event: Event, now_ns: int) -> None:
        if isinstance(event, Preempted):
            other = self._lives.get(event.beneficiary_id)
            life.on_preempted(event, other.request_id if other else "", now_ns)
            return
        life.on_event(event, now_ns)
        if isinstance(event, Retired | Aborted):
            self._on_ended(life, event, now_ns)

    def _on_ended(self, life: Life, event: Retired | Aborted, now_ns: int) -> None:
        del self._lives[event.sequence_id]
        if life.left_ns is not None:
            self._departed.append(life)
        account = self._accounts.get(event.request_id)
        if account is None or life not in account.lives:
            return  # its id has been taken by a newer request
        if self._is_delivered_at_end:
            life.close(now_ns)
        account.num_left -= 1
        account.ended_ns = now_ns
        if account.num_left:
            return
        self._ended[event.request_id] = None
        if account.end_ns is not None or self._is_delivered_at_end or is_withdrawn(event):
            self._finish(event.request_id)
        elif len(self._ended) > MAX_UNDELIVERED:
            self._finish(next(iter(self._ended)))

    def _finish(self, request_id: str) -> None:
        del self._ended[request_id]
        account = self._accounts.pop(request_id)
        account.request = None
        if account.end_ns is None:
            account.end_ns = account.ended_ns
        assert account.end_ns is not None
        for life in account.lives:
            life.close(account.end_ns)
        self._kept.pop(request_id, None)
        self._kept[request_id] = account
        while len(self._kept) > self._buffer:
            del self._kept[next(iter(self._kept))]
        self._on_finished(account)


def _account(arrival: Arrival) -> Account:
    request = arrival.request
    return Account(
        request_id=request.request_id,
        tenant=request.tenant,
        num_prompt_tokens=request.num_prompt_tokens,
        arrival_ns=arrival.arrival_ns,
        num_left=request.sampling.n,
        request=request,
    )
