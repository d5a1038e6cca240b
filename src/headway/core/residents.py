"""Who has a slot, and the blocks that go with it."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field

from headway.core.blocks import BlockPool
from headway.core.constraints import Constraint
from headway.core.events import Retired
from headway.core.policies import Policies
from headway.core.sequence import Sequence, SequenceStatus


@dataclass(slots=True, eq=False)
class Residents:
    """The running sequences, and those that ended but keep their place in a static batch."""

    pool: BlockPool
    policies: Policies
    constraints: tuple[Constraint, ...]
    running: dict[int, Sequence] = field(default_factory=dict)  # by id, in order of admission
    num_computed_tokens: int = 0  # of all that run
    _untold: list[Retired] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.policies.precedence.watch(self.running, self.pool)

    @property
    def num_slots_taken(self) -> int:
        return len(self.running) + len(self.policies.unit.parked)

    def enter(self, sequence: Sequence) -> None:
        """The sequence, whose blocks are taken already, gets a slot."""
        sequence.status = SequenceStatus.RUNNING
        self.running[sequence.sequence_id] = sequence
        self.num_computed_tokens += sequence.num_computed_tokens
        self.policies.forecast.entered(sequence)
        self.policies.admission.entered(sequence)
        self.policies.ordering.entered(sequence)
        self.policies.precedence.entered(sequence)
        for constraint in self.constraints:
            constraint.entered(sequence)

    def grow(self, sequence: Sequence, num_blocks: int) -> None:
        """The sequence, that runs, gets so many more blocks; they must be free."""
        block_ids = self.pool.allocate(num_blocks)
        sequence.block_ids += block_ids
        self.policies.precedence.grew(sequence, block_ids)

    def grow_each(self, sequences: SequenceOf[Sequence]) -> None:
        """Each of them gets one more."""
        for sequence, block_id in zip(sequences, self.pool.allocate(len(sequences)), strict=True):
            sequence.block_ids.append(block_id)
            self.policies.precedence.grew(sequence, (block_id,))

    def evict(self, sequence: Sequence) -> list[Retired]:
        """The sequence loses slot and blocks and must start over; returns endings now due."""
        self._leave(sequence)
        self._release(sequence)
        sequence.forget_computed()
        return self._due()

    def retire(self, sequence: Sequence, retired: Retired | None) -> list[Retired]:
        """The sequence has ended; returns the endings now due.

        In a static batch they are due when the batch has drained, as its callers get their answers
        together; None is told by the caller.
        """
        sequence.finish()
        if retired:
            self._untold.append(retired)
            self.policies.forecast.ended(sequence)
        self._leave(sequence)
        if not self.policies.unit.park(sequence):
            self._release(sequence)
        return self._due()

    def _leave(self, sequence: Sequence) -> None:
        del self.running[sequence.sequence_id]
        self.num_computed_tokens -= sequence.num_computed_tokens
        self.policies.forecast.left(sequence)
        self.policies.admission.left(sequence)
        self.policies.ordering.left(sequence)
        self.policies.precedence.left(sequence)
        for constraint in self.constraints:
            constraint.left(sequence)

    def _due(self) -> list[Retired]:
        if not self.running:
            for parked in self.policies.unit.drain():
                self._release(parked)
        if self.policies.unit.parked:
            return []
        due, self._untold = self._untold, []
        return due

    def _release(self, sequence: Sequence) -> None:
        self.pool.free(sequence.block_ids)
        sequence.block_ids = []  # another list: chunks in flight keep the one they were given
