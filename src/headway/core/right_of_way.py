"""A slot, blocks and tokens for the waiting who outrank some of the running."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain

from headway.core.blocks import BlockPool
from headway.core.config import SchedulerConfig
from headway.core.entrance import Entrance
from headway.core.eviction import Eviction
from headway.core.policies import Policies
from headway.core.policies.precedence import Precedence
from headway.core.residents import Residents
from headway.core.sequence import Sequence
from headway.core.step_builder import StepBuilder
from headway.core.waiting import WaitingQueue

_MOST_BARRED = 256  # looked at in a step, of those who would come first but for their tenant


@dataclass(frozen=True, slots=True)
class RightOfWay:
    """Preempts for a waiting sequence, not only for one that grows.

    A step that preempts admits nobody but those for whom it does, and if its tokens do not last for
    them, the next does: what is freed is enough for them and for what the others grow by in both.
    The least urgent pay, among equals whom the victim rule names. Nobody pays in vain: if all that
    are outranked do not have enough between them, or admission would refuse it even without them,
    nothing happens. If it fits already, or once it does, its tokens are held for it, so that
    prompts of the less urgent do not take them.
    """

    config: SchedulerConfig
    policies: Policies
    pool: BlockPool
    residents: Residents
    waiting: WaitingQueue
    entrance: Entrance
    eviction: Eviction

    def prepare(self, step: StepBuilder, now_ns: int) -> None:
        """Before anybody is placed in `step`: evict, or hold tokens, for the first in the queue."""
        if not self.policies.precedence.has_ranks:
            return
        self.policies.precedence.begin()
        if not (self.waiting and self.residents.running):
            return
        urgent = self._urgent(now_ns)
        if (first := next(urgent, None)) is None:
            return
        step.is_settled = False
        if self.entrance.objects(first, step):
            return  # whoever made way for it, it would not come in
        if self._fits(first):
            step.makes_way_for = first
            step.hold(self._num_tokens_due(first))
            return
        if plan := self._plan(chain((first,), urgent), step):
            for victim, beneficiary in plan:
                step.invited.add(beneficiary.sequence_id)
                self.eviction.preempt(victim, beneficiary, step, now_ns)
            step.makes_way_for = first
            step.hold(self._num_tokens_due(first))

    def _urgent(self, now_ns: int) -> Iterator[Sequence]:
        """The waiting who outrank somebody and are not barred."""
        lowest = self.policies.precedence.lowest()
        num_barred = 0
        for sequence in self.waiting.in_order(now_ns):
            if self.policies.precedence.rank(sequence) >= lowest or num_barred >= _MOST_BARRED:
                return
            if self.entrance.barred(sequence) is None:
                yield sequence
            else:
                num_barred += 1

    def _fits(self, sequence: Sequence) -> bool:
        """Whether it gets in with this step, whatever the others grow by in it."""
        need = self.entrance.num_blocks_missing(sequence)
        return self._ledger(1).has_room(need) and self.entrance.fits(sequence)

    def _num_tokens_due(self, sequence: Sequence) -> int:
        """Its first chunk, as far as those that it does not outrank leave room for it."""
        if self.policies.precedence.spares_decodes:
            return 0
        budget = self.config.max_num_batched_tokens
        rank = self.policies.precedence.rank(sequence)
        ahead = sum(
            s.num_wanted_tokens()
            for s in self.residents.running.values()
            if self.policies.precedence.rank(s) <= rank
        )
        return self.entrance.num_first_tokens(sequence, max(0, budget - ahead))

    # ---- Whom it costs ----

    def _plan(
        self, urgent: Iterable[Sequence], step: StepBuilder
    ) -> list[tuple[Sequence, Sequence]]:
        """Victims, each with whom it makes way for; for as many as the next step can admit."""
        ledger = self._ledger(2)
        plan: list[tuple[Sequence, Sequence]] = []
        num_tokens = self.config.max_num_batched_tokens
        entering: list[Sequence] = []
        for sequence in urgent:
            if num_tokens <= 0 or (entering and self.entrance.objects(sequence, step, entering)):
                break
            rank = self.policies.precedence.rank(sequence, entering)
            found = self._victims_for(sequence, rank, ledger, at_least=0 if plan else 1)
            if found is None:
                break
            entering.append(sequence)
            plan += [(victim, sequence) for victim in found]
            ledger.admit(self.entrance.num_blocks_missing(sequence))
            num_tokens -= self.entrance.num_first_tokens(sequence, num_tokens)
        return plan

    def _victims_for(
        self, sequence: Sequence, rank: int, ledger: _Ledger, *, at_least: int
    ) -> list[Sequence] | None:
        """Taken out of the ledger; None if they are not enough, and then it is of no more use."""
        need, precedence = self.entrance.num_blocks_missing(sequence), self.policies.precedence
        found: list[Sequence] = []
        if not ledger.may_have_room(need, precedence, rank):
            return None
        while not ledger.has_room(need) or len(found) < at_least:
            outranked = [
                s
                for s in ledger.running.values()
                if precedence.rank(s) > rank and precedence.may_pay(s)
            ]
            if not outranked:
                return None
            lowest = max(map(precedence.rank, outranked))
            equals = {s.sequence_id: s for s in outranked if precedence.rank(s) == lowest}
            found.append(self.policies.victim.choose(equals, self.pool))
            ledger.lose(found[-1])
        return found

    def _ledger(self, num_steps: int) -> _Ledger:
        """What is left when all that run have grown for so many steps."""
        growths: dict[int, int] = {}
        budget = self.config.max_num_batched_tokens
        for sequence in self.residents.running.values():
            num_wanted = sequence.num_wanted_tokens()
            chunk = self.policies.prefill.first_chunk(num_wanted, budget)
            num_ahead = min(num_wanted + num_steps - 1, num_steps * chunk)
            end = sequence.num_computed_tokens + num_ahead
            num_blocks = self.config.num_blocks_for(min(end, sequence.max_num_tokens))
            growths[sequence.sequence_id] = max(0, num_blocks - len(sequence.block_ids))
        return _Ledger(self.pool, self.residents, self.config, growths)


class _Ledger:
    """Slots and blocks as they would be."""

    def __init__(
        self,
        pool: BlockPool,
        residents: Residents,
        config: SchedulerConfig,
        growths: dict[int, int],
    ) -> None:
        self._pool = pool
        self._growths = growths
        self._num_left: Counter[int] = Counter()  # by block: holders that are gone
        self._num_slots = config.max_num_seqs - residents.num_slots_taken
        self._num_blocks = pool.num_free - sum(growths.values())
        self.running = dict(residents.running)

    def has_room(self, num_blocks: int) -> bool:
        return self._num_slots > 0 and self._num_blocks >= num_blocks

    def may_have_room(self, num_blocks: int, precedence: Precedence, rank: int) -> bool:
        """False: not even if all of a larger rank were gone. Costs less than to try."""
        outranked = [s for s in self.running.values() if precedence.rank(s) > rank]
        most = sum(self._growths[s.sequence_id] + len(s.block_ids) for s in outranked)
        return self._num_slots + len(outranked) > 0 and self._num_blocks + most >= num_blocks

    def admit(self, num_blocks: int) -> None:
        self._num_slots -= 1
        self._num_blocks -= num_blocks

    def lose(self, victim: Sequence) -> None:
        del self.running[victim.sequence_id]
        self._num_slots += 1
        self._num_blocks += self._growths[victim.sequence_id]
        for block_id in victim.block_ids:
            self._num_left[block_id] += 1
            self._num_blocks += self._num_left[block_id] == self._pool.num_holders(block_id)
