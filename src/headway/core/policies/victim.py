"""Who loses its blocks when a running sequence cannot grow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from headway.core.blocks import BlockPool
from headway.core.policies.ordering import urgency
from headway.core.sequence import Sequence


class VictimRule(Protocol):
    def choose(self, running: Mapping[int, Sequence], pool: BlockPool) -> Sequence:
        """One of the running (by id, in order of admission), at least one of them given.

        Preempting it must free a block, or the loop that asks would evict without getting closer.
        """
        ...


class Newest:
    """The last admitted, so that the oldest always gets on.

    Its last block is its own: what shares a block of it was admitted after it.
    """

    def choose(self, running: Mapping[int, Sequence], pool: BlockPool) -> Sequence:
        return next(reversed(running.values()))  # type: ignore[call-overload, no-any-return]


class LowestPriority:
    """The least urgent, latest arrival first, of those that hold a block of their own.

    There is always one: the last admitted. Who shares every block frees nothing by leaving.
    """

    def choose(self, running: Mapping[int, Sequence], pool: BlockPool) -> Sequence:
        return max((s for s in running.values() if _frees_a_block(s, pool)), key=urgency)


def _frees_a_block(sequence: Sequence, pool: BlockPool) -> bool:
    # From the end: the last block is nearly always its own.
    return any(pool.num_holders(block_id) == 1 for block_id in reversed(sequence.block_ids))
