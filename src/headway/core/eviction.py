"""Blocks for a running sequence that must grow, at the cost of others if there are none."""

from __future__ import annotations

from collections.abc import Mapping

from headway.core.blocks import BlockPool
from headway.core.config import SchedulerConfig
from headway.core.events import Preempted
from headway.core.live import LiveSequences
from headway.core.policies import Policies
from headway.core.residents import Residents
from headway.core.sequence import Sequence
from headway.core.step_builder import StepBuilder
from headway.core.waiting import WaitingQueue


class Eviction:
    """Preempts whom the victim rule names; a victim goes back to the queue and starts over."""

    def __init__(
        self,
        config: SchedulerConfig,
        policies: Policies,
        *,
        pool: BlockPool,
        residents: Residents,
        waiting: WaitingQueue,
        live: LiveSequences,
    ) -> None:
        self._config = config
        self._victims = policies.victim
        self._precedence = policies.precedence
        self._pool = pool
        self._residents = residents
        self._waiting = waiting
        self._live = live

    def make_room(
        self, sequence: Sequence, num_tokens: int, step: StepBuilder, now_ns: int
    ) -> bool:
        """Preempt until `sequence` can grow by `num_tokens`. False if it was its own victim."""
        num_missing = self._num_missing(sequence, num_tokens)
        if num_missing <= 0:
            return True
        while num_missing > self._num_free_for(sequence, step):
            victim = self._victims.choose(self._not_above(sequence), self._pool)
            self.preempt(victim, sequence, step, now_ns)
            if victim is sequence:
                return False
        sequence.block_ids += self._pool.allocate(num_missing)
        return True

    def _num_free_for(self, sequence: Sequence, step: StepBuilder) -> int:
        # With somebody about to come, what all grow by in this step is counted already.
        if step.makes_way or not self._precedence.has_ranks:
            return self._pool.num_free
        return self._pool.num_free - self._precedence.kept(sequence).num_blocks

    def _not_above(self, sequence: Sequence) -> Mapping[int, Sequence]:
        """Who may pay for its growth: itself, its equals, and those that it outranks."""
        running = self._residents.running
        if not self._precedence.has_ranks:
            return running
        rank = self._precedence.rank(sequence)
        return {i: s for i, s in running.items() if self._precedence.rank(s) >= rank}

    def try_grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """Let `sequence` grow by `num_tokens` if there are blocks for them."""
        num_missing = self._num_missing(sequence, num_tokens)
        if num_missing > self._pool.num_free:
            return False
        if num_missing > 0:
            sequence.block_ids += self._pool.allocate(num_missing)
        return True

    def _num_missing(self, sequence: Sequence, num_tokens: int) -> int:
        num_tokens += sequence.num_computed_tokens
        return self._config.num_blocks_for(num_tokens) - len(sequence.block_ids)

    def preempt(
        self, victim: Sequence, beneficiary: Sequence, step: StepBuilder, now_ns: int
    ) -> None:
        """Take the victim's slot and blocks, and its chunk out of the step, if it has one."""
        step.drop(victim)
        num_free_before = self._pool.num_free
        step.retired += self._live.tell(self._residents.evict(victim))
        self._waiting.take_back(victim, now_ns)
        step.preempted.append(
            Preempted(
                victim.sequence_id,
                victim.request.request_id,
                beneficiary_id=beneficiary.sequence_id,
                num_lost_tokens=victim.num_lost_tokens,
                num_free_blocks_before=num_free_before,
                num_free_blocks_after=self._pool.num_free,
                num_preemptions=victim.num_preemptions,
            )
        )
