"""Shares of tenants in slots and memory: who gives way to whom, and what is kept free for whom."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from collections.abc import Sequence as SequenceOf

from headway.core.blocks import BlockPool
from headway.core.config import SchedulerConfig
from headway.core.policies.precedence import NOTHING, Kept, Precedence
from headway.core.sequence import Sequence, SequenceStatus

_LATELY = 1024  # admissions for which a tenant that has gone counts as there
_LOW = 2  # a tenant with one such part of its share, or less, may put others out
_KEPT = 16  # of the slots and blocks one in so many is kept, at most
_RUNNING = SequenceStatus.RUNNING
_Amounts = tuple[int, int]  # slots and blocks
MODEST, BETWEEN, AHEAD, OVER = 0, 1, 2, 3


class TenantShares(Precedence):
    """Each tenant that is there has a share of slots and blocks, by its weight.

    Modest is a tenant that has no more than its share of all, with all that it asks for. Low is one
    that is modest, has one sequence, or has no more than half its share of all; over its share is
    one that is not low and has more than its share of those that are taken. It gives way to a
    waiting one whose tenant stays low: so nobody goes back and forth; and nobody pays again who has
    not got on since. And it leaves a slot and the blocks of a step's tokens, at most a sixteenth
    of all, to those who are not over theirs. The tenant that went last, of the others, counts as
    there for 1,024 admissions, so that it finds room when it comes back.
    """

    spares_decodes = True

    def __init__(self, config: SchedulerConfig, weights: Mapping[str, int]) -> None:
        self._config = config
        self._weights = weights
        self._present: Counter[str] = Counter()  # sequences that run or wait
        self._num_running: Counter[str] = Counter()
        self._num_waiting: Counter[str] = Counter()
        self._num_asked: Counter[str] = Counter()  # blocks for the prompts of the waiting
        self._num_own: Counter[str] = Counter()  # blocks of theirs that nobody else holds
        self._holders: dict[int, int] = {}  # by block: the sum of their ids; of one alone, its own
        self._over: dict[str, bool] = {}  # of tenants that run, as far as somebody asked
        self._weight = 0  # of the present
        self._gone: dict[str, int] = {}  # the latest two, and when: admissions before it
        self._num_entered = 0
        self._running: Mapping[int, Sequence] = {}
        self._pool = BlockPool(1)
        self.most_kept = NOTHING
        self._num_held: defaultdict[str, int] = defaultdict(int)  # `_num_own` as the step began
        self._num_taken_blocks = 0  # by all

    # ---- Who is there ----

    @property
    def has_ranks(self) -> bool:
        return len(self._present) + bool(self._gone) > 1

    def came(self, tenant: str) -> None:
        """One more sequence of it waits or runs."""
        self._over.clear()
        if tenant not in self._present:
            self._weight += self._weights.get(tenant, 1)
            self._gone.pop(tenant, None)
        self._present[tenant] += 1

    def went(self, tenant: str) -> None:
        """One less."""
        self._over.clear()
        self._present[tenant] -= 1
        if not self._present[tenant]:
            del self._present[tenant]
            self._weight -= self._weights.get(tenant, 1)
            self._gone[tenant] = self._num_entered
            if len(self._gone) > 2:  # one may be who comes next, and then the other is known yet
                del self._gone[next(iter(self._gone))]

    def queued(self, sequence: Sequence) -> None:
        """It waits from now on."""
        self.came(sequence.request.tenant)
        self._ask(sequence, 1)

    def dequeued(self, sequence: Sequence) -> None:
        """It waits no longer: it has a slot already, or has ended."""
        self.went(sequence.request.tenant)
        if sequence.status is not _RUNNING:
            self._ask(sequence, -1)

    def _ask(self, sequence: Sequence, sign: int) -> None:
        tenant = sequence.request.tenant
        self._num_waiting[tenant] += sign
        self._num_asked[tenant] += sign * self._config.num_blocks_for(sequence.num_prompt_tokens)
        if not self._num_waiting[tenant]:
            del self._num_waiting[tenant], self._num_asked[tenant]

    def entered(self, sequence: Sequence) -> None:
        self.came(sequence.request.tenant)
        self._ask(sequence, -1)
        self._hold(sequence, 1)
        self._num_running[sequence.request.tenant] += 1
        self._num_held[sequence.request.tenant] += len(sequence.block_ids)
        self._num_entered += 1
        if self._gone and self._num_entered - min(self._gone.values()) > _LATELY:
            del self._gone[next(iter(self._gone))]

    def left(self, sequence: Sequence) -> None:
        self.went(sequence.request.tenant)
        self._hold(sequence, -1)
        self._num_running[sequence.request.tenant] -= 1
        if not self._num_running[sequence.request.tenant]:
            del self._num_running[sequence.request.tenant]
            self._num_own.pop(sequence.request.tenant, None)

    def grew(self, sequence: Sequence, block_ids: SequenceOf[int]) -> None:
        self._num_own[sequence.request.tenant] += len(block_ids)
        self._holders.update(dict.fromkeys(block_ids, sequence.sequence_id))

    def _hold(self, sequence: Sequence, sign: int) -> None:
        """It has come to hold its blocks (1), or is about to give them up (-1)."""
        holders, own = self._holders, self._num_own
        for block_id in sequence.block_ids:
            total = holders.get(block_id, 0)
            holders[block_id] = total + sign * sequence.sequence_id
            num_holders = self._pool.num_holders(block_id)
            if num_holders == 1:
                own[sequence.request.tenant] += sign
            elif num_holders == 2:
                other = total if sign > 0 else holders[block_id]
                own[self._running[other].request.tenant] -= sign

    def watch(self, running: Mapping[int, Sequence], pool: BlockPool) -> None:
        self._running, self._pool = running, pool
        num_blocks = self._config.num_blocks_for(self._config.max_num_batched_tokens)
        num_blocks = min(num_blocks, pool.num_blocks // _KEPT)
        self.most_kept = Kept(min(1, self._config.max_num_seqs // _KEPT), num_blocks)

    def begin(self) -> None:
        self._num_held = defaultdict(int, self._num_own)
        self._num_taken_blocks = sum(self._num_held.values())
        self._over.clear()

    # ---- Who is over its share ----

    def rank(self, sequence: Sequence, entering: Collection[Sequence] = ()) -> int:
        if sequence.status is _RUNNING:
            return self.is_over(sequence)
        return not self._is_low(self._has(sequence, entering), sequence)

    def lowest(self) -> int:
        return 1

    def may_pay(self, sequence: Sequence) -> bool:
        return sequence.num_computed_tokens > sequence.num_reached_tokens

    def is_over(self, sequence: Sequence) -> bool:
        """Whether its tenant is over its share, or would be if this one ran too."""
        tenant, runs = sequence.request.tenant, sequence.status is _RUNNING
        if runs and tenant in self._over:
            return self._over[tenant]
        is_over = self.level(sequence) == OVER and not self._is_modest(sequence)
        if runs:
            self._over[tenant] = is_over
        return is_over

    def level(self, sequence: Sequence) -> int:
        """Prompts of tenants of a larger one wait for those of a smaller one."""
        has = self._has(sequence)
        if self._has_more(has, sequence):  # though it may be modest: a flood that begins
            return AHEAD if self._is_small(has, sequence) else OVER
        return MODEST if self._is_modest(sequence) else BETWEEN

    def _is_low(self, has: _Amounts, sequence: Sequence) -> bool:
        """Modest, or one sequence, or no more than a part of its tenant's share."""
        return self._is_small(has, sequence) or self._is_modest(sequence)

    def _is_small(self, has: _Amounts, sequence: Sequence) -> bool:
        part = self._config.max_num_seqs // _LOW, self._pool.num_blocks // _LOW
        return has[0] < 2 or not self._exceeds(has, sequence, part)

    def _has_more(self, has: _Amounts, sequence: Sequence) -> bool:
        """Than its tenant's share of what is taken, and than one sequence."""
        taken = len(self._running), self._num_taken_blocks
        return has[0] > 1 and self._exceeds(has, sequence, taken)

    def _is_modest(self, sequence: Sequence) -> bool:
        tenant = sequence.request.tenant
        num_slots = self._num_running[tenant] + self._num_waiting[tenant]
        wants = num_slots, self._num_held[tenant] + self._num_asked[tenant]
        all_ = self._config.max_num_seqs, self._pool.num_blocks
        return not self._exceeds(wants, sequence, all_)

    def _exceeds(self, has: _Amounts, sequence: Sequence, total: _Amounts) -> bool:
        """Whether it is more than the share of its tenant in so much."""
        weight = self._weights.get(sequence.request.tenant, 1)
        weights = self._weight + sum(self._weights.get(t, 1) for t in [*self._gone][-1:])
        return any(weights * own > weight * all_ for own, all_ in zip(has, total, strict=True))

    def kept(self, sequence: Sequence | None) -> Kept:
        if not self.has_ranks or (sequence is not None and not self.is_over(sequence)):
            return NOTHING
        return self.most_kept

    def _has(self, sequence: Sequence, entering: Collection[Sequence] = ()) -> _Amounts:
        """What its tenant has, and with what it needs itself, and those, if it waits."""
        tenant = sequence.request.tenant
        num_slots, num_blocks = self._num_running[tenant], self._num_held[tenant]
        if sequence.status is not _RUNNING:
            for one in (sequence, *(s for s in entering if s.request.tenant == tenant)):
                num_slots += 1
                num_blocks += self._config.num_blocks_for(one.num_tokens)
        return num_slots, num_blocks
