"""Who may take the place of whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from collections.abc import Sequence as SequenceOf
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
    most_kept: Kept = NOTHING  # no answer of `kept` is larger

    @property
    def has_ranks(self) -> bool:
        """Whether anybody may outrank anybody now."""
        ...

    def rank(self, sequence: Sequence, entering: Collection[Sequence] = ()) -> int:
        """One of a smaller rank may put out one of a larger; equals never do. Of one that waits,
        once these run."""
        ...

    def lowest(self) -> int:
        """No rank of the running, at least one, is larger."""
        return 0

    def may_pay(self, sequence: Sequence) -> bool:
        """Whether it may be put out for a waiting one that outranks it."""
        return True

    def kept(self, sequence: Sequence | None) -> Kept:
        """What it leaves free for others, when it enters and when it grows; None: anybody."""
        return NOTHING

    def watch(self, running: Mapping[int, Sequence], pool: BlockPool) -> None:
        """Who runs, by id, and what they hold blocks of, from now on. Once."""
        return

    def begin(self) -> None:
        """A step begins."""
        return

    def entered(self, sequence: Sequence) -> None:
        """The sequence, whose blocks are taken already, got a slot."""
        return

    def left(self, sequence: Sequence) -> None:
        """The sequence loses its slot, and next its blocks: it was preempted or has ended."""
        return

    def grew(self, sequence: Sequence, block_ids: SequenceOf[int]) -> None:
        """The sequence got these blocks, which nobody else holds."""
        return


class Equality(Precedence):
    """Nobody gives way to a waiting one."""

    has_ranks = False

    def rank(self, sequence: Sequence, entering: Collection[Sequence] = ()) -> int:
        return 0


class PriorityRanks(Precedence):
    """The request's priority alone: by arrival nobody is put out."""

    has_ranks = True

    def __init__(self) -> None:
        self._priorities: Counter[int] = Counter()  # of the running

    def entered(self, sequence: Sequence) -> None:
        self._priorities[sequence.request.priority] += 1

    def left(self, sequence: Sequence) -> None:
        self._priorities -= Counter((sequence.request.priority,))

    def rank(self, sequence: Sequence, entering: Collection[Sequence] = ()) -> int:
        return sequence.request.priority

    def lowest(self) -> int:
        return max(self._priorities)
