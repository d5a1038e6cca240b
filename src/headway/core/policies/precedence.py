"""Who may take the place of whom."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

from headway.core.blocks import BlockPool
from headway.core.sequence import Sequence


class Kept(NamedTuple):
    num_slots: int
    num_blocks: int


NOTHING = Kept(0, 0)


class Precedence(Protocol):
    """Told of every sequence that gets a slot and loses it, and when a step begins."""

    spares_decodes: bool = False  # those of a larger rank wait with their prompts only

    @property
    def has_ranks(self) -> bool:
        """Whether anybody may outrank anybody now."""
        ...

    def rank(self, sequence: Sequence, entering: Collection[Sequence] = ()) -> int:
        """One of a smaller rank may put out one of a larger; equals never do. Of one that waits,
        once these run."""
        ...

    def lowest(self, running: Collection[Sequence]) -> int:
        """No rank of these, at least one, is larger."""
        return max(map(self.rank, running))

    def may_pay(self, sequence: Sequence) -> bool:
        """Whether it may be put out for a waiting one that outranks it."""
        return True

    def kept(self, sequence: Sequence | None) -> Kept:
        """What it leaves free for others, when it enters and when it grows; None: anybody."""
        return NOTHING

    def begin(self, running: Collection[Sequence], pool: BlockPool) -> None:
        """A step begins with these."""
        return

    def entered(self, sequence: Sequence) -> None:
        """The sequence, whose blocks are taken already, got a slot."""
        return

    def left(self, sequence: Sequence) -> None:
        """The sequence lost its slot: it was preempted or has ended."""
        return


class Equality(Precedence):
    """Nobody gives way to a waiting one."""

    has_ranks = False

    def rank(self, sequence: Sequence, entering: Collection[Sequence] = ()) -> int:
        return 0


class PriorityRanks(Precedence):
    """The request's priority alone: by arrival nobody is put out."""

    has_ranks = True

    def rank(self, sequence: Sequence, entering: Collection[Sequence] = ()) -> int:
        return sequence.request.priority
