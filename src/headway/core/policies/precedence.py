"""Who may take the place of whom."""

from __future__ import annotations

from typing import Protocol

from headway.core.sequence import Sequence


class Precedence(Protocol):
    @property
    def has_ranks(self) -> bool:
        """Whether anybody ever outranks anybody."""
        ...

    def rank(self, sequence: Sequence) -> int:
        """One of a smaller rank may put out one of a larger; equals never do."""
        ...


class Equality:
    """Nobody gives way to a waiting one."""

    has_ranks = False

    def rank(self, sequence: Sequence) -> int:
        return 0


class PriorityRanks:
    """The request's priority alone: by arrival nobody is put out."""

    has_ranks = True

    def rank(self, sequence: Sequence) -> int:
        return sequence.request.priority
