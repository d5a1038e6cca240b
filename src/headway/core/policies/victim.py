"""Who loses its blocks when a running sequence cannot grow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from headway.core.blocks import BlockPool
from headway.core.policies.ordering import urgency
from headway.core.sequence import Sequence


class VictimRule(Protocol):
    def choose(self, running: Mapping[int, Sequence], pool: BlockPool) -> Sequence:
        """One of these running (by id, in order of admission), at least one of them given.

        Preempting it must free a block if that of any of them does, or the loop that asks would
        evict without getting closer.
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

    Who shares every block frees nothing by leaving. The last admitted does not, so there is one
    among all that run.
    """

    def choose(self, running: Mapping[int, Sequence], pool: BlockPool) -> Sequence:
        return max(able_to_pay(running, pool), key=urgency)


class LeastLost:
    """Who has the fewest tokens to compute again, without those that others go on holding.

    Leading blocks that it shares stay findable, so they are a refund that is sure. What the prefix
    cache keeps of its own blocks is the same whoever it is (decision 51), so it decides nothing.

    Nobody starves: the oldest is passed over while there is another, and so is who has not got
    past where it was when it was preempted last. If that leaves nobody, the last admitted pays.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size

    def choose(self, running: Mapping[int, Sequence], pool: BlockPool) -> Sequence:
        oldest = min(running.values(), key=_arrival)
        able = able_to_pay(running, pool)
        others = [s for s in able if s is not oldest]
        caught_up = [s for s in others if s.num_computed_tokens > s.num_reached_tokens]
        if not caught_up:
            return (others or able)[-1]
        return max(caught_up, key=lambda s: (-self._num_lost(s, pool), _arrival(s)))

    def _num_lost(self, sequence: Sequence, pool: BlockPool) -> int:
        num_shared = pool.num_shared(sequence.block_ids)
        return max(0, sequence.num_computed_tokens - num_shared * self._block_size)


def _arrival(sequence: Sequence) -> tuple[int, int]:
    return sequence.request.arrival_ns, sequence.sequence_id


def able_to_pay(running: Mapping[int, Sequence], pool: BlockPool) -> list[Sequence]:
    """Those who free a block by leaving; all, if none does."""
    # From the end: the last block is nearly always its own.
    able = [s for s in running.values() if 1 in map(pool.num_holders, reversed(s.block_ids))]
    return able or list(running.values())
