"""Who has a slot, and the blocks that go with it."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

from headway.core.blocks import BlockPool
from headway.core.constraints import Constraint
from headway.core.events import Retired
from headway.core.policies import Policies
from headway.core.sequence import Sequence, SequenceStatus


class Residents:
    """The running sequences, and those that ended but keep their place in a static batch."""

    def __init__(
        self, pool: BlockPool, policies: Policies, constraints: SequenceOf[Constraint]
    ) -> None:
        self._pool = pool
        self._unit = policies.unit
        self._admission = policies.admission
        self._forecast = policies.forecast
        self._ordering = policies.ordering
        self._precedence = policies.precedence
        self._constraints = tuple(constraints)
        self.running: dict[int, Sequence] = {}  # by sequence id, in order of admission
        self._untold: list[Retired] = []
        self.num_computed_tokens = 0  # of all that run
        self._precedence.watch(self.running, pool)

    @property
    def num_slots_taken(self) -> int:
        return len(self.running) + len(self._unit.parked)

    def enter(self, sequence: Sequence) -> None:
        """The sequence, whose blocks are taken already, gets a slot."""
        sequence.status = SequenceStatus.RUNNING
        self.running[sequence.sequence_id] = sequence
        self.num_computed_tokens += sequence.num_computed_tokens
        self._forecast.entered(sequence)
        self._admission.entered(sequence)
        self._ordering.entered(sequence)
        self._precedence.entered(sequence)
        for constraint in self._constraints:
            constraint.entered(sequence)

    def grow(self, sequence: Sequence, num_blocks: int) -> None:
        """The sequence, that runs, gets so many more blocks; they must be free."""
        block_ids = self._pool.allocate(num_blocks)
        sequence.block_ids += block_ids
        self._precedence.grew(sequence, block_ids)

    def grow_each(self, sequences: SequenceOf[Sequence]) -> None:
        """Each of them gets one more."""
        for sequence, block_id in zip(sequences, self._pool.allocate(len(sequences)), strict=True):
            sequence.block_ids.append(block_id)
            self._precedence.grew(sequence, (block_id,))

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
            self._forecast.ended(sequence)
        self._leave(sequence)
        if not self._unit.park(sequence):
            self._release(sequence)
        return self._due()

    def _leave(self, sequence: Sequence) -> None:
        del self.running[sequence.sequence_id]
        self.num_computed_tokens -= sequence.num_computed_tokens
        self._forecast.left(sequence)
        self._admission.left(sequence)
        self._ordering.left(sequence)
        self._precedence.left(sequence)
        for constraint in self._constraints:
            constraint.left(sequence)

    def _due(self) -> list[Retired]:
        if not self.running:
            for parked in self._unit.drain():
                self._release(parked)
        if self._unit.parked:
            return []
        due, self._untold = self._untold, []
        return due

    def _release(self, sequence: Sequence) -> None:
        self._pool.free(sequence.block_ids)
        sequence.block_ids = []  # another list: chunks in flight keep the one they were given
