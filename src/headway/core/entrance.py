"""Who of the waiting gets a slot in a step, and with which blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from headway.core.blocks import BlockPool
from headway.core.config import SchedulerConfig
from headway.core.constraints import Constraint, TenantSlots
from headway.core.events import Admitted, Resumed
from headway.core.policies import Policies
from headway.core.prefix import PrefixCache
from headway.core.residents import Residents
from headway.core.sequence import Sequence, SequenceStatus
from headway.core.step import Blocker
from headway.core.step_builder import StepBuilder
from headway.core.waiting import WaitingQueue

_MOST_PASSED_OVER = 32  # by prompts that are short beside those under way, in a step


@dataclass(eq=False)
class Entrance:
    """Admits the waiting, in their order, until somebody has to go on waiting."""

    config: SchedulerConfig
    policies: Policies
    constraints: tuple[Constraint, ...]
    tenant_slots: TenantSlots | None
    pool: BlockPool
    prefix: PrefixCache
    residents: Residents

    def admit(self, waiting: WaitingQueue, step: StepBuilder, now_ns: int) -> list[Sequence]:
        """Place in `step` whom it has room for and name what blocks the rest; who got a slot."""
        entered: list[Sequence] = []
        passed: list[Sequence] = []
        for sequence in self._worth_a_look(waiting, step, now_ns):
            blocker = self._closed(step, sequence)
            if blocker is None and (barred := self.barred(sequence)):
                step.bar(sequence, barred)
                continue
            if passed and self._is_outranked(sequence, passed[0]):
                break
            if blocker is None:
                blocker = self._try_admit(sequence, step)
            if blocker is None:
                entered.append(sequence)
                _note_passed(passed, now_ns)
                step.is_settled &= not passed  # it may have taken the last slot
                continue
            if not passed:
                step.block(sequence, blocker)
            elif blocker is Blocker.BUDGET:
                step.is_settled = False  # the step after may have enough of it
            if not self.policies.passing.allows(sequence, blocker, now_ns, len(passed)):
                break
            passed.append(sequence)
        if self.residents.running:
            self.policies.unit.stop_admitting(step.blocked[0] if step.blocked else None)
        return entered

    def _worth_a_look(
        self, waiting: WaitingQueue, step: StepBuilder, now_ns: int
    ) -> Iterator[Sequence]:
        """In order, until all that are left are barred by the caps of their tenants."""
        slots, in_order = self.tenant_slots, waiting.in_order(now_ns)
        if slots is None:
            yield from in_order
            return
        seen: Counter[str] = Counter()
        num_unseen, are_some_open = len(waiting), False
        for sequence in in_order:
            is_open = are_some_open or self._closed(step) is not None
            if not is_open and not slots.num_open(num_unseen, seen):
                step.bar(sequence, Blocker.TENANT, num_unseen)
                return
            are_some_open = slots.bars(sequence) is not None  # as many as before this one
            seen[sequence.request.tenant] += 1
            num_unseen -= 1
            yield sequence

    def _is_outranked(self, sequence: Sequence, passed: Sequence) -> bool:
        """It would be put out again for the one that it passes."""
        return self.policies.precedence.rank(sequence) > self.policies.precedence.rank(passed)

    def _closed(self, step: StepBuilder, sequence: Sequence | None = None) -> Blocker | None:
        """Why nobody can be admitted any more in this step, whoever it is."""
        if step.preempted and (sequence is None or sequence.sequence_id not in step.invited):
            return Blocker.EVICTION
        if self.policies.unit.is_sealed:
            return Blocker.STATIC_BATCH
        if self.residents.num_slots_taken >= self.config.max_num_seqs:
            return Blocker.SLOTS
        if not step.tokens_left:
            return Blocker.BUDGET
        if step.barred.get(Blocker.PREFILL, 0) >= _MOST_PASSED_OVER:
            return Blocker.PREFILL
        return None

    def barred(self, sequence: Sequence) -> Blocker | None:
        """Which constraint it waits for; None for none."""
        for constraint in self.constraints:
            if blocker := constraint.bars(sequence):
                return blocker
        return self.policies.prefill.bars(sequence)

    # ---- What one would need ----

    @property
    def _num_spare(self) -> int:
        """Blocks that an admission leaves free while others run."""
        return int(self.config.watermark * self.pool.num_blocks)

    def fits(self, sequence: Sequence) -> bool:
        """Whether there is a slot for it and enough blocks, whatever the budget has left."""
        if self.residents.num_slots_taken >= self.config.max_num_seqs:
            return False
        cached_ids = self.prefix.find(sequence)
        return self._has_room(sequence, cached_ids, self._num_after_first(sequence, cached_ids))

    def _num_after_first(self, sequence: Sequence, cached_ids: SequenceOf[int]) -> int:
        """Tokens that are computed when it has had its first chunk, of a whole step."""
        num_cached = len(cached_ids) * self.config.block_size
        budget, num_left = self.config.max_num_batched_tokens, sequence.num_tokens - num_cached
        return num_cached + self.policies.prefill.first_chunk(num_left, budget)

    def num_first_tokens(self, sequence: Sequence, budget: int) -> int:
        """Tokens of its first chunk, if it had so many of a step."""
        num_cached = len(self.prefix.find(sequence)) * self.config.block_size
        return self.policies.prefill.first_chunk(sequence.num_tokens - num_cached, budget)

    def num_blocks_missing(self, sequence: Sequence) -> int:
        """Blocks that must be free for it, beside others: cached ones that it would take too."""
        cached_ids = self.prefix.find(sequence)
        need = self._num_blocks_free(sequence, self._num_after_first(sequence, cached_ids))
        return need - len(cached_ids) + self.pool.num_unheld(cached_ids) + self._num_spare

    def _num_blocks_free(self, sequence: Sequence, num_tokens: int) -> int:
        num_tokens = self.policies.admission.num_tokens_free(sequence, num_tokens)
        return self.config.num_blocks_for(num_tokens)

    def objects(
        self, sequence: Sequence, step: StepBuilder, entering: SequenceOf[Sequence] = ()
    ) -> bool:
        """Whether it may not start, even if all that it outranks made way and these came first."""
        if self.policies.admission.refuses(sequence):
            return True
        return self._objection(sequence, self.prefix.find(sequence), step, entering) is not None

    def _objection(
        self,
        sequence: Sequence,
        cached_ids: list[int],
        step: StepBuilder,
        entering: SequenceOf[Sequence] = (),
    ) -> Blocker | None:
        if not self.residents.running:
            return None
        num_shared = len(cached_ids) - self.pool.num_unheld(cached_ids)
        beside = self._not_outranked(sequence)
        if beside is not None:
            beside |= {s.sequence_id: s for s in entering}
        admission = self.policies.admission
        return admission.objection(sequence, self.pool, num_shared, step.index, beside)

    def _not_outranked(self, sequence: Sequence) -> dict[int, Sequence] | None:
        """Of the running, those that do not make way for it; None if that is all of them."""
        if not self.policies.precedence.has_ranks:
            return None
        rank, running = self.policies.precedence.rank(sequence), self.residents.running
        found = {i: s for i, s in running.items() if self.policies.precedence.rank(s) <= rank}
        return found if len(found) < len(running) else None

    # ---- Getting in ----

    def _try_admit(self, sequence: Sequence, step: StepBuilder) -> Blocker | None:
        """Give the sequence a slot and its first chunk, or say what is missing."""
        if self.policies.admission.refuses(sequence):
            return Blocker.BLOCKS
        num_kept = self.policies.precedence.kept(sequence).num_slots
        if self.residents.num_slots_taken + num_kept >= self.config.max_num_seqs:
            return Blocker.SLOTS
        cached_ids = self.prefix.find(sequence)
        num_cached = len(cached_ids) * self.config.block_size
        num_wanted = sequence.num_tokens - num_cached
        num_tokens = self.policies.prefill.chunk(sequence, num_cached, num_wanted, step)
        if not num_tokens:
            return Blocker.BUDGET
        if not self._has_room(sequence, cached_ids, num_cached + num_tokens):
            return Blocker.BLOCKS
        if (objection := self._objection(sequence, cached_ids, step)) is not None:
            return objection
        self._take_blocks(sequence, cached_ids, num_cached + num_tokens)
        self._enter_slot(sequence, num_cached, step)
        step.add(sequence, num_tokens, samples=num_tokens == num_wanted)
        self.prefix.register([sequence])
        return None

    def _has_room(self, sequence: Sequence, cached_ids: list[int], num_tokens: int) -> bool:
        need = self._num_blocks_free(sequence, num_tokens)
        # Cached blocks that nobody holds are among the free ones, and cease to be by sharing them.
        num_free = self.pool.num_free - self.pool.num_unheld(cached_ids)
        if self.residents.running:
            num_free -= self._num_spare + self.policies.precedence.kept(sequence).num_blocks
        return need - len(cached_ids) <= num_free

    def _take_blocks(self, sequence: Sequence, cached_ids: list[int], num_tokens: int) -> None:
        num_tokens = self.policies.admission.num_tokens_taken(sequence, num_tokens)
        num_new = self.config.num_blocks_for(num_tokens) - len(cached_ids)
        self.pool.share(cached_ids)
        sequence.block_ids = cached_ids + self.pool.allocate(num_new)

    def _enter_slot(self, sequence: Sequence, num_cached: int, step: StepBuilder) -> None:
        sequence_id, request_id = sequence.sequence_id, sequence.request.request_id
        if sequence.status is SequenceStatus.PREEMPTED:
            num_redone = max(0, sequence.num_lost_tokens - num_cached)
            step.resumed.append(Resumed(sequence_id, request_id, num_cached, num_redone))
        else:
            sequence.num_cached_tokens = num_cached
            step.admitted.append(Admitted(sequence_id, request_id, num_cached))
        sequence.num_computed_tokens = num_cached
        sequence.num_registered_blocks = num_cached // self.config.block_size
        self.residents.enter(sequence)


def _note_passed(passed: Iterable[Sequence], now_ns: int) -> None:
    for sequence in passed:
        if sequence.passed_since_ns is None:
            sequence.passed_since_ns = now_ns
