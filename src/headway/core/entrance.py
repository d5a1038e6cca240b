"""Who of the waiting gets a slot in a step, and with which blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from collections.abc import Sequence as SequenceOf

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


class Entrance:
    """Admits the waiting, in their order, until somebody has to go on waiting."""

    def __init__(
        self,
        config: SchedulerConfig,
        policies: Policies,
        constraints: SequenceOf[Constraint],
        tenant_slots: TenantSlots | None,
        pool: BlockPool,
        prefix: PrefixCache,
        residents: Residents,
    ) -> None:
        self._config = config
        self._admission = policies.admission
        self._prefill = policies.prefill
        self._unit = policies.unit
        self._passing = policies.passing
        self._precedence = policies.precedence
        self._constraints = tuple(constraints)
        self._tenant_slots = tenant_slots
        self._pool = pool
        self._prefix = prefix
        self._residents = residents
        self._watermark_blocks = int(config.watermark * pool.num_blocks)

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
            if not self._passing.allows(sequence, blocker, now_ns, len(passed)):
                break
            passed.append(sequence)
        if self._residents.running:
            self._unit.stop_admitting(step.blocked[0] if step.blocked else None)
        return entered

    def _worth_a_look(
        self, waiting: WaitingQueue, step: StepBuilder, now_ns: int
    ) -> Iterator[Sequence]:
        """In order, until all that are left are barred by the caps of their tenants."""
        slots, in_order = self._tenant_slots, waiting.in_order(now_ns)
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
        return self._precedence.rank(sequence) > self._precedence.rank(passed)

    def _closed(self, step: StepBuilder, sequence: Sequence | None = None) -> Blocker | None:
        """Why nobody can be admitted any more in this step, whoever it is."""
        if step.preempted and (sequence is None or sequence.sequence_id not in step.invited):
            return Blocker.EVICTION
        if self._unit.is_sealed:
            return Blocker.STATIC_BATCH
        if self._residents.num_slots_taken >= self._config.max_num_seqs:
            return Blocker.SLOTS
        if not step.tokens_left:
            return Blocker.BUDGET
        if step.barred.get(Blocker.PREFILL, 0) >= _MOST_PASSED_OVER:
            return Blocker.PREFILL
        return None

    def barred(self, sequence: Sequence) -> Blocker | None:
        """Which constraint it waits for; None for none."""
        for constraint in self._constraints:
            if blocker := constraint.bars(sequence):
                return blocker
        return self._prefill.bars(sequence)

    # ---- What one would need ----

    def fits(self, sequence: Sequence) -> bool:
        """Whether there is a slot for it and enough blocks, whatever the budget has left."""
        if self._residents.num_slots_taken >= self._config.max_num_seqs:
            return False
        cached_ids = self._prefix.find(sequence)
        num_tokens = self._num_after_first(sequence, cached_ids)
        return self._has_room(sequence, cached_ids, num_tokens)

    def _num_after_first(self, sequence: Sequence, cached_ids: SequenceOf[int]) -> int:
        """Tokens that are computed when it has had its first chunk, of a whole step."""
        num_cached = len(cached_ids) * self._config.block_size
        budget = self._config.max_num_batched_tokens
        return num_cached + self._prefill.first_chunk(sequence.num_tokens - num_cached, budget)

    def num_first_tokens(self, sequence: Sequence, budget: int) -> int:
        """Tokens of its first chunk, if it had so many of a step."""
        num_cached = len(self._prefix.find(sequence)) * self._config.block_size
        return self._prefill.first_chunk(sequence.num_tokens - num_cached, budget)

    def num_blocks_missing(self, sequence: Sequence) -> int:
        """Blocks that must be free for it, beside others: cached ones that it would take too."""
        cached_ids = self._prefix.find(sequence)
        num_tokens = self._num_after_first(sequence, cached_ids)
        need = self._config.num_blocks_for(self._admission.num_tokens_free(sequence, num_tokens))
        num_own = need - len(cached_ids) + self._pool.num_unheld(cached_ids)
        return num_own + self._watermark_blocks

    def objects(
        self, sequence: Sequence, step: StepBuilder, entering: SequenceOf[Sequence] = ()
    ) -> bool:
        """Whether it may not start, even if all that it outranks made way and these came first."""
        if self._admission.refuses(sequence):
            return True
        return self._objection(sequence, self._prefix.find(sequence), step, entering) is not None

    def _objection(
        self,
        sequence: Sequence,
        cached_ids: list[int],
        step: StepBuilder,
        entering: SequenceOf[Sequence] = (),
    ) -> Blocker | None:
        if not self._residents.running:
            return None
        num_shared = len(cached_ids) - self._pool.num_unheld(cached_ids)
        beside = self._not_outranked(sequence)
        if beside is not None:
            beside |= {s.sequence_id: s for s in entering}
        return self._admission.objection(sequence, self._pool, num_shared, step.index, beside)

    def _not_outranked(self, sequence: Sequence) -> dict[int, Sequence] | None:
        """Of the running, those that do not make way for it; None if that is all of them."""
        if not self._precedence.has_ranks:
            return None
        rank, running = self._precedence.rank(sequence), self._residents.running
        found = {i: s for i, s in running.items() if self._precedence.rank(s) <= rank}
        return found if len(found) < len(running) else None

    # ---- Getting in ----

    def _try_admit(self, sequence: Sequence, step: StepBuilder) -> Blocker | None:
        """Give the sequence a slot and its first chunk, or say what is missing."""
        if self._admission.refuses(sequence):
            return Blocker.BLOCKS
        num_slots = self._residents.num_slots_taken + self._precedence.kept(sequence).num_slots
        if num_slots >= self._config.max_num_seqs:
            return Blocker.SLOTS
        cached_ids = self._prefix.find(sequence)
        num_cached = len(cached_ids) * self._config.block_size
        num_wanted = sequence.num_tokens - num_cached
        num_tokens = self._prefill.chunk(sequence, num_cached, num_wanted, step)
        if not num_tokens:
            return Blocker.BUDGET
        if not self._has_room(sequence, cached_ids, num_cached + num_tokens):
            return Blocker.BLOCKS
        if (objection := self._objection(sequence, cached_ids, step)) is not None:
            return objection
        self._take_blocks(sequence, cached_ids, num_cached + num_tokens)
        self._enter_slot(sequence, num_cached, step)
        step.add(sequence, num_tokens, samples=num_tokens == num_wanted)
        self._prefix.register([sequence])
        return None

    def _has_room(self, sequence: Sequence, cached_ids: list[int], num_tokens: int) -> bool:
        need = self._config.num_blocks_for(self._admission.num_tokens_free(sequence, num_tokens))
        # Cached blocks that nobody holds are among the free ones, and cease to be by sharing them.
        num_free = self._pool.num_free - self._pool.num_unheld(cached_ids)
        if self._residents.running:
            num_free -= self._watermark_blocks + self._precedence.kept(sequence).num_blocks
        return need - len(cached_ids) <= num_free

    def _take_blocks(self, sequence: Sequence, cached_ids: list[int], num_tokens: int) -> None:
        taken = self._config.num_blocks_for(self._admission.num_tokens_taken(sequence, num_tokens))
        self._pool.share(cached_ids)
        sequence.block_ids = cached_ids + self._pool.allocate(taken - len(cached_ids))

    def _enter_slot(self, sequence: Sequence, num_cached: int, step: StepBuilder) -> None:
        sequence_id, request_id = sequence.sequence_id, sequence.request.request_id
        if sequence.status is SequenceStatus.PREEMPTED:
            num_redone = max(0, sequence.num_lost_tokens - num_cached)
            step.resumed.append(Resumed(sequence_id, request_id, num_cached, num_redone))
        else:
            sequence.num_cached_tokens = num_cached
            step.admitted.append(Admitted(sequence_id, request_id, num_cached))
        sequence.num_computed_tokens = num_cached
        sequence.num_registered_blocks = num_cached // self._config.block_size
        self._residents.enter(sequence)


def _note_passed(passed: Iterable[Sequence], now_ns: int) -> None:
    for sequence in passed:
        if sequence.passed_since_ns is None:
            sequence.passed_since_ns = now_ns
