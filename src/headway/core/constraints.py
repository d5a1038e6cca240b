"""What may bar a waiting sequence that would otherwise get its turn."""

from __future__ import annotations

from typing import Protocol

from headway.core.sequence import Sequence
from headway.core.step import Blocker


class Constraint(Protocol):
    """An adapter not loaded, a grammar not compiled, a tenant at its cap.

    A barred sequence is passed over, not waited for, and holds no blocks. Asked once for every
    sequence that comes up for admission; told when one gets a slot and when it loses it.
    """

    def bars(self, sequence: Sequence) -> Blocker | None:
        """Why the sequence may not be admitted in this step; None if it may."""
        ...

    def entered(self, sequence: Sequence) -> None:
        """The sequence got a slot."""
        ...

    def left(self, sequence: Sequence) -> None:
        """The sequence lost its slot: it ended or was preempted."""
        ...
