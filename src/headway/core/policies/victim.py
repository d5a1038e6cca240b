"""Who loses its blocks when a running sequence cannot grow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from headway.core.sequence import Sequence


class VictimRule(Protocol):
    def choose(self, running: Mapping[int, Sequence]) -> Sequence:
        """One of the running (by id, in order of admission), at least one of them given.

        Preempting it must free a block, or the loop that asks would evict without getting closer.
        """
        ...


class Newest:
    """The last admitted, so that the oldest always gets on.

    Its last block is its own: what shares a block of it was admitted after it.
    """

    def choose(self, running: Mapping[int, Sequence]) -> Sequence:
        return next(reversed(running.values()))  # type: ignore[call-overload, no-any-return]
