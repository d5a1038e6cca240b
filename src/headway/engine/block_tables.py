"""The block tables of a step, kept from one step to the next."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from operator import is_not

import numpy as np

from headway.ops.interface import I32

_FEW = 16  # columns at first


class BlockTables:
    """A row of block ids for each chunk, padded with -1.

    A chunk's list of blocks grows at its end and changes in no other way: a row that is there
    stays, and is found again by the list itself, wherever it stands in the next step.
    """

    def __init__(self) -> None:
        self._lists: SequenceOf[SequenceOf[int]] = ()
        self._tables = np.full((0, _FEW), -1, np.int32)
        self._filled = np.zeros(0, np.int32)

    def cover(self, lists: SequenceOf[SequenceOf[int]], num_blocks: I32) -> I32:
        """[len(lists), at least the most] ids; the first `num_blocks[i]` of row i are those of
        list i. Holds until the next call, which goes on with the same array."""
        if lists is not self._lists and (
            len(lists) != len(self._lists) or any(map(is_not, lists, self._lists))
        ):
            self._rearrange(lists)
        self._widen(int(num_blocks.max(initial=0)))
        for row in np.flatnonzero(num_blocks > self._filled).tolist():
            begin, end = int(self._filled[row]), int(num_blocks[row])
            self._tables[row, begin:end] = lists[row][begin:end]
        np.maximum(self._filled, num_blocks, out=self._filled)
        return self._tables

    def _rearrange(self, lists: SequenceOf[SequenceOf[int]]) -> None:
        """Bring the rows that go on to their new places; the others are empty."""
        row_of = {id(known): row for row, known in enumerate(self._lists)}
        before = np.array([row_of.get(id(new), -1) for new in lists], np.int64)
        is_new = before < 0
        if len(self._lists):
            self._tables, self._filled = self._tables[before], self._filled[before]
        else:
            self._tables = np.empty((len(lists), _FEW), np.int32)
            self._filled = np.empty(len(lists), np.int32)
        self._tables[is_new] = -1
        self._filled[is_new] = 0
        self._lists = lists  # held, so that no other list can be taken for one of these

    def _widen(self, width: int) -> None:
        rows, columns = self._tables.shape
        if width > columns:
            wider = np.full((rows, max(width, 2 * columns)), -1, np.int32)
            wider[:, :columns] = self._tables
            self._tables = wider
