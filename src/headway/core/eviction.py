"""Blocks for a running sequence that must grow, at the cost of others if there are none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from headway.core.blocks import BlockPool
from headway.core.config import SchedulerConfig
from headway.core.events import Preempted
from headway.core.live import LiveSequences
from headway.core.policies import Policies
from headway.core.residents import Residents
from headway.core.sequence import Sequence
from headway.core.step_builder import StepBuilder
from headway.core.waiting import WaitingQueue


@dataclass(frozen=True, slots=True)
class Eviction:
    """Preempts whom the victim rule names; a victim goes back to the queue and starts over."""

    config: SchedulerConfig
    policies: Policies
    pool: BlockPool
    residents: Residents
    waiting: WaitingQueue
    live: LiveSequences

    def make_room(
        self, sequence: Sequence, num_tokens: int, step: StepBuilder, now_ns: int
    ) -> bool:
        """Preempt until `sequence` can grow by `num_tokens`. False if it was its own victim."""
        missing = self._num_missing(sequence, num_tokens)
        if missing <= 0:
            return True
        while self._must_evict(sequence, missing, step):
            victim = self.policies.victim.choose(self._not_above(sequence), self.pool)
            self.preempt(victim, sequence, step, now_ns)
            if victim is sequence:
                return False
        self.residents.grow(sequence, missing)
        return True

    def _must_evict(self, sequence: Sequence, num_blocks: int, step: StepBuilder) -> bool:
        """Whether so many blocks are not free for it."""
        num_left, precedence = self.pool.num_free - num_blocks, self.policies.precedence
        if num_left >= precedence.most_kept.num_blocks:  # nearly always
            return False
        # With somebody about to come, what all grow by in this step is counted already.
        if step.makes_way_for or not precedence.has_ranks:
            return num_left < 0
        return num_left < precedence.kept(sequence).num_blocks

    def _not_above(self, sequence: Sequence) -> Mapping[int, Sequence]:
        """Who may pay for its growth: itself, its equals, and those that it outranks."""
        running = self.residents.running
        if not self.policies.precedence.has_ranks:
            return running
        rank = self.policies.precedence.rank(sequence)
        return {i: s for i, s in running.items() if self.policies.precedence.rank(s) >= rank}

    def try_grow(self, sequence: Sequence, num_tokens: int) -> bool:
        """Let `sequence` grow by `num_tokens` if there are blocks for them."""
        num_missing = self._num_missing(sequence, num_tokens)
        if num_missing > self.pool.num_free:
            return False
        if num_missing > 0:
            self.residents.grow(sequence, num_missing)
        return True

    def try_grow_all(self, sequences: Iterable[Sequence], step: StepBuilder) -> bool:
        """Let each grow by a token, until one would have to evict for it."""
        size = self.config.block_size
        for sequence in sequences:
            if sequence.num_computed_tokens == len(sequence.block_ids) * size:
                if self._must_evict(sequence, 1, step):
                    return False
                self.residents.grow(sequence, 1)
        return True

    def _num_missing(self, sequence: Sequence, num_tokens: int) -> int:
        num_tokens += sequence.num_computed_tokens
        return self.config.num_blocks_for(num_tokens) - len(sequence.block_ids)

    def preempt(
        self, victim: Sequence, beneficiary: Sequence, step: StepBuilder, now_ns: int
    ) -> None:
        """Take the victim's slot and blocks, and its chunk out of the step, if it has one."""
        step.drop(victim)
        num_free_before = self.pool.num_free
        step.retired += self.live.tell(self.residents.evict(victim))
        self.waiting.take_back(victim, now_ns)
        step.preempted.append(
            Preempted(
                victim.sequence_id,
                victim.request.request_id,
                beneficiary_id=beneficiary.sequence_id,
                num_lost_tokens=victim.num_lost_tokens,
                num_free_blocks_before=num_free_before,
                num_free_blocks_after=self.pool.num_free,
                num_preemptions=victim.num_preemptions,
            )
        )
