"""A waiting queue whose order never changes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import NamedTuple

from headway.core.sequence import Sequence

Rank = int | tuple[int, ...]  # all of a queue of one kind


class _Place(NamedTuple):
    """Where a sequence stands; ids differ, so sequences are never compared."""

    rank: Rank
    sequence_id: int
    sequence: Sequence


class RankedQueue:
    """Sequences by a rank that each keeps while it waits; of equal ranks, the older first.

    To come and to go costs a search in a sorted list; nothing is sorted again.
    """

    def __init__(self) -> None:
        self._places: list[_Place] = []
        self._rank_of: dict[int, Rank] = {}

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Sequence]:
        return (place.sequence for place in self._places)

    def __contains__(self, sequence: Sequence) -> bool:
        return sequence.sequence_id in self._rank_of

    def insert(self, sequence: Sequence, rank: Rank) -> None:
        insort(self._places, _Place(rank, sequence.sequence_id, sequence))
        self._rank_of[sequence.sequence_id] = rank

    def remove(self, sequence: Sequence) -> None:
        """Raises KeyError for one that is not in it."""
        place = _Place(self._rank_of.pop(sequence.sequence_id), sequence.sequence_id, sequence)
        del self._places[bisect_left(self._places, place)]
