"""What is batched: steps (continuous) or whole requests (static)."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from typing import Protocol

from headway.core.sequence import Sequence
from headway.core.step import Blocker


class BatchingUnit(Protocol):
    is_sealed: bool = False  # nobody is admitted until the batch has drained
    parked: SequenceOf[Sequence] = ()  # have ended, and keep slot and blocks until then

    @property
    def holds_decodes(self) -> bool:
        """The batch is still being filled, so nobody decodes unless there is nothing else to do."""
        return False

    def park(self, sequence: Sequence) -> bool:
        """Keep an ended sequence's slot and blocks. False: they are free at once."""
        return False

    def stop_admitting(self, blocker: Blocker | None) -> None:
        """A step's admission ended with somebody running; None: the queue is empty."""
        return

    def drain(self) -> SequenceOf[Sequence]:
        """Nobody runs any more: returns the parked, whose blocks are now free."""
        return []


class PerStep(BatchingUnit):
    """Membership is decided anew in every step."""


class PerRequest(BatchingUnit):
    """Static batching: fill (over several steps if the budget needs it), seal, run to the end.

    fill     members are admitted and prefilled; sealed when slots, blocks or the queue end it
    sealed   everybody decodes; who ends keeps slot and blocks idle; nobody is admitted
    drained  the last running member is gone: all is freed and the next batch opens
    """

    def __init__(self) -> None:
        self.is_sealed = False
        self.parked: SequenceOf[Sequence] = ()

    @property
    def holds_decodes(self) -> bool:
        return not self.is_sealed

    def park(self, sequence: Sequence) -> bool:
        self.parked = (*self.parked, sequence)
        return True

    def stop_admitting(self, blocker: Blocker | None) -> None:
        goes_on = blocker in (Blocker.BUDGET, Blocker.PREFILL)
        self.is_sealed = self.is_sealed or not goes_on

    def drain(self) -> SequenceOf[Sequence]:
        self.is_sealed = False
        parked, self.parked = self.parked, ()
        return parked
