"""Fair shares of tenants: the Virtual Token Counter, and whom it preempts.

Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024. A tenant is charged for what
it is served; whoever of the waiting was charged least comes next. Integers, exact: with weights, a
token costs a tenant the least common multiple of all weights over its own.
"""

from __future__ import annotations

import math
from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush, heapreplace
from itertools import pairwise
from typing import TYPE_CHECKING

from headway.core.blocks import BlockPool
from headway.core.config import SchedulerConfig, weights_of
from headway.core.policies.ordering import Ordering
from headway.core.policies.shares import TenantShares
from headway.core.policies.victim import able_to_pay
from headway.core.sequence import Sequence, SequenceStatus
from headway.core.step import Step

if TYPE_CHECKING:  # it imports the policies
    from headway.core.stride import Stride

# Of a token, w_p and w_q in the paper: an output token takes a pass of its own.
PROMPT_COST, OUTPUT_COST = 1, 2
# What idle time earns at most, in prompt tokens of a tenant that weighs 1.
CREDIT = 32_768
_FEW = 1024  # so many tenants are remembered in any case
_MOST_IDLE = 1 << 15  # and so many at most of those who have nobody waiting


@dataclass(slots=True, eq=False)
class _Tenant:
    unit: int  # what its tokens cost, times PROMPT_COST or OUTPUT_COST
    counter: int
    serial: int = 0  # of its latest joining of the line: no two tenants in it have the same
    queue: OrderedDict[int, Sequence] = field(default_factory=OrderedDict)

    @property
    def turn(self) -> tuple[int, int]:
        """Less is earlier."""
        return self.counter, self.serial

    def stands_at(self, serial: int) -> bool:
        """Whether it is in the line since the joining of that number."""
        return self.serial == serial and bool(self.queue)


# In the heap of turns: a turn, the index, and who is to come of the queue; None: not looked at yet.
_Place = tuple[int, int, int, Iterator[Sequence] | None]


class Fair(Ordering):
    """The tenant that was served least comes first, of each tenant's own the first to come.

    Charged are prompt tokens, when a sequence is admitted, without those that the prefix cache
    had, and output tokens, in the step that yields them; not what a preemption has computed again.
    A tenant that had nobody waiting joins the line at most `CREDIT` below the least counter in it,
    or below where the last tenant left it: so much, and no more, is earned by idle time.
    """

    def __init__(self, config: SchedulerConfig) -> None:
        self._weights = weights_of(config.tenant_weights)
        self.shares = TenantShares(config, self._weights)
        self._multiple = math.lcm(*self._weights.values())
        self._credit = CREDIT * self._multiple
        self._reached = 0  # the most that the least counter of the line ever was when one joined
        self._tenants: dict[str, _Tenant] = {}
        self._line: dict[str, _Tenant] = {}  # who has somebody waiting
        # A heap of their turns, as they were or are now, for counters only grow; and of some left.
        self._turns: list[tuple[int, int, _Tenant]] = []
        self._num_waiting = 0
        self._num_joined = 0
        self._last: _Tenant | None = None  # to leave the line
        self._num_running: Counter[str] = Counter()
        self._least_new = 0  # where those begin who are not remembered
        self._most_remembered = _FEW

    def __len__(self) -> int:
        return self._num_waiting

    def counter_of(self, tenant: str) -> int:
        """What it was charged, and lifted to; comparable between tenants of all weights."""
        known = self._tenants.get(tenant)
        return self._least_new if known is None else known.counter

    def debt(self, sequence: Sequence) -> tuple[bool, int]:
        """Whoever runs and has most of it pays for blocks."""
        return self.shares.is_over(sequence), self.counter_of(sequence.request.tenant)

    # ---- The queue ----

    def enqueue(self, sequence: Sequence, now_ns: int) -> None:
        self._place(sequence)

    def requeue(self, sequence: Sequence, now_ns: int) -> None:
        self._place(sequence).move_to_end(sequence.sequence_id, last=False)

    def _place(self, sequence: Sequence) -> OrderedDict[int, Sequence]:
        name = sequence.request.tenant
        tenant = self._tenant(name)
        if name not in self._line:
            tenant.counter = max(tenant.counter, self._start())
            tenant.serial = self._num_joined
            self._num_joined += 1
            self._line[name] = tenant
            heappush(self._turns, (*tenant.turn, tenant))
        tenant.queue[sequence.sequence_id] = sequence
        self._num_waiting += 1
        self.shares.queued(sequence)
        if len(self._turns) > 2 * len(self._line) + _FEW:
            self._turns = [(*t.turn, t) for t in self._line.values()]
            heapify(self._turns)
        return tenant.queue

    def remove(self, sequence: Sequence) -> None:
        name = sequence.request.tenant
        tenant = self._line[name]
        del tenant.queue[sequence.sequence_id]
        self._num_waiting -= 1
        self.shares.dequeued(sequence)
        if not tenant.queue:
            self._last = self._line.pop(name)

    def waiting(self, now_ns: int) -> Iterator[Sequence]:
        """Who is let in while this is iterated counts at once, as the paper has it."""
        self._freshen_turns()
        turns = self._turns  # is walked in order as it is: whoever is not reached costs nothing
        ahead: list[_Place] = [(*turns[0][:2], 0, None)] if turns else []
        while ahead:
            counter, serial, place, queue = ahead[0]
            tenant = turns[place][2]
            if queue is None:
                heappop(ahead)
                for behind in range(2 * place + 1, min(2 * place + 3, len(turns))):
                    heappush(ahead, (*turns[behind][:2], behind, None))
                if tenant.stands_at(serial):
                    heappush(ahead, (*tenant.turn, place, iter(tenant.queue.values())))
            elif (sequence := next(queue, None)) is None:
                heappop(ahead)
            else:
                yield sequence
                if sequence.status is SequenceStatus.RUNNING:
                    counter += _prompt_cost(sequence) * tenant.unit
                    heapreplace(ahead, (counter, serial, place, queue))

    def _freshen_turns(self) -> None:
        """Until the first of them is of the tenant whose turn it is, as it is now."""
        while self._turns:
            counter, serial, tenant = self._turns[0]
            if not tenant.stands_at(serial):
                heappop(self._turns)
            elif counter < tenant.counter:
                heapreplace(self._turns, (*tenant.turn, tenant))
            else:
                return

    def is_before(self, waiting: Sequence, running: Sequence) -> bool:
        return self.shares.rank(waiting) < self.shares.rank(running)

    # ---- The counters ----

    def entered(self, sequence: Sequence) -> None:
        self._num_running[sequence.request.tenant] += 1
        if cost := _prompt_cost(sequence):
            tenant = self._tenant(sequence.request.tenant)
            tenant.counter += cost * tenant.unit

    def left(self, sequence: Sequence) -> None:
        self._num_running -= Counter((sequence.request.tenant,))

    def launched(self, step: Step, tokenless: SequenceOf[Sequence], now_ns: int) -> None:
        served = self._num_running
        if tokenless:
            served = served - Counter(s.request.tenant for s in tokenless)
        for name, num_tokens in served.items():
            tenant = self._tenant(name)
            tenant.counter += num_tokens * OUTPUT_COST * tenant.unit

    def took(self, stride: Stride, num_steps: int) -> None:
        for sequence in stride.sequences:
            tenant = self._tenant(sequence.request.tenant)
            tenant.counter += num_steps * OUTPUT_COST * tenant.unit

    def num_steps_in_order(self, decoding: SequenceOf[Sequence]) -> int | None:
        pace = dict.fromkeys(self._line, 0)
        for sequence in decoding:
            if sequence.request.tenant in pace:
                pace[sequence.request.tenant] += OUTPUT_COST
        line = sorted(self._line.items(), key=lambda named: named[1].turn)
        most: int | None = None
        for (name, tenant), (next_name, behind) in pairwise(line):
            gained = pace[name] * tenant.unit - pace[next_name] * behind.unit
            if gained > 0:  # on the one behind it, with each step
                # At the same count the one that joined first stays first.
                lead = behind.counter - tenant.counter - (behind.serial < tenant.serial)
                num_steps = lead // gained + 1
                most = num_steps if most is None else min(most, num_steps)
        return most

    # ---- The tenants ----

    def _start(self) -> int:
        """Where a tenant joins the line at least."""
        floor = self._floor()
        self._reached = max(self._reached, floor)
        return max(0, min(floor, self._reached - self._credit))

    def _floor(self) -> int:
        """The least counter in the line, or where the last tenant left it."""
        self._freshen_turns()
        if self._turns:
            return self._turns[0][0]
        return self._least_new if self._last is None else self._last.counter

    def _tenant(self, name: str) -> _Tenant:
        known = self._tenants.get(name)
        if known is None:
            if len(self._tenants) >= self._most_remembered:
                self._forget()
            unit = self._multiple // self._weights.get(name, 1)
            known = self._tenants[name] = _Tenant(unit, self._least_new)
        return known

    def _forget(self) -> None:
        """Those who would join the line at its floor anyway, as somebody unknown does.

        And if clients make up names without end, those who are the least above it.
        """
        self._least_new = start = self._start()
        kept = {
            name: tenant
            for name, tenant in self._tenants.items()
            if tenant.queue or tenant.counter > start or tenant is self._last
        }
        idle = [name for name, t in kept.items() if not t.queue and t is not self._last]
        if len(idle) > _MOST_IDLE:
            idle.sort(key=lambda name: kept[name].counter)  # of equals, whoever came first
            for name in idle[: len(idle) - _MOST_IDLE // 2]:
                del kept[name]
        self._tenants = kept
        self._most_remembered = 2 * len(kept) + _FEW


def _prompt_cost(sequence: Sequence) -> int:
    """Of what it has just been admitted with; nothing if it was before."""
    if sequence.num_preemptions:
        return 0
    return PROMPT_COST * (sequence.num_prompt_tokens - sequence.num_cached_tokens)


class MostServed:
    """The newest of the tenant with the largest counter, of those that free a block by leaving; but
    before all others of tenants that are over their share.

    So nobody is evicted for a tenant that was served more, and what a sequence pays with is the
    advantage of its own tenant. Somebody always gets on: while no token is yielded no counter
    moves, and the same ones are chosen until somebody has what it needs.
    """

    def __init__(self, fair: Fair) -> None:
        self._fair = fair

    def choose(self, running: Mapping[int, Sequence], pool: BlockPool) -> Sequence:
        return max(reversed(able_to_pay(running, pool)), key=self._fair.debt)
