"""KV memory as blocks: who holds which, which are free, which free ones are still worth finding."""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from typing import NewType

BlockHash = NewType("BlockHash", bytes)


class BlockPool:
    """Blocks 0 .. num_blocks - 1, counted by holders.

        blank   free, nothing in it worth finding        handed out first, last freed first
        cached  free, findable by its hash               handed out next, least recently used first
        held    one or more sequences hold it            findable too once it has a hash

    Every block is in exactly one of the three. Raises ValueError when asked for what it has not.
    """

    def __init__(self, num_blocks: int) -> None:
        if num_blocks < 1:
            raise ValueError(f"a block pool needs at least 1 block, got {num_blocks}")
        self.num_blocks = num_blocks
        self._num_holders = [0] * num_blocks
        self._hash_of: list[BlockHash | None] = [None] * num_blocks
        self._block_of: dict[BlockHash, int] = {}
        self._blank = list(range(num_blocks - 1, -1, -1))
        self._cached: OrderedDict[int, None] = OrderedDict()

    @property
    def num_free(self) -> int:
        """Blocks that can be handed out: blank and cached ones."""
        return len(self._blank) + len(self._cached)

    @property
    def num_cached(self) -> int:
        """Free blocks that can still be found by their hash."""
        return len(self._cached)

    @property
    def num_held(self) -> int:
        return self.num_blocks - self.num_free

    def num_holders(self, block_id: int) -> int:
        return self._num_holders[block_id]

    def num_shared(self, block_ids: SequenceOf[int]) -> int:
        """Of a block table, the blocks that others hold too: whoever shares one shares those
        before it."""
        holders = self._num_holders
        if not block_ids or holders[block_ids[0]] == 1:
            return 0
        return bisect_left(block_ids, True, key=lambda block_id: holders[block_id] == 1)

    def hash_of(self, block_id: int) -> BlockHash | None:
        return self._hash_of[block_id]

    def hashes(self) -> dict[BlockHash, int]:
        """A copy of the index: hash to block."""
        return dict(self._block_of)

    def free_blocks(self) -> list[int]:
        """In the order in which they would be handed out."""
        return [*reversed(self._blank), *self._cached]

    def allocate(self, num_blocks: int) -> list[int]:
        """Take blocks out of the free ones; their old contents can no longer be found."""
        if num_blocks > self.num_free:
            raise ValueError(f"{num_blocks} blocks wanted, {self.num_free} are free")
        blank, holders = self._blank, self._num_holders
        block_ids = blank[: -num_blocks - 1 : -1]  # the last freed first
        if num_blocks:
            del blank[-num_blocks:]
        while len(block_ids) < num_blocks:
            block_id, _ = self._cached.popitem(last=False)
            self._drop_hash(block_id)
            block_ids.append(block_id)
        for block_id in block_ids:
            holders[block_id] = 1
        return block_ids

    def share(self, block_ids: Iterable[int]) -> None:
        """One more holder for each; a cached block is held again."""
        for block_id in block_ids:
            if not self._num_holders[block_id]:
                if self._hash_of[block_id] is None:
                    raise ValueError(f"block {block_id} is blank, so there is nothing to share")
                del self._cached[block_id]
            self._num_holders[block_id] += 1

    def free(self, block_ids: list[int]) -> None:
        """One holder less for each block of a sequence's block table."""
        # Tail first: a prefix is worth more than its end, and the oldest is reused first.
        holders = self._num_holders
        for block_id in reversed(block_ids):
            if not holders[block_id]:
                raise ValueError(f"block {block_id} is freed, but nobody holds it")
            holders[block_id] -= 1
            if holders[block_id]:
                continue
            if self._hash_of[block_id] is None:
                self._blank.append(block_id)
            else:
                self._cached[block_id] = None

    def num_unheld(self, block_ids: Iterable[int]) -> int:
        """How many of these would leave the free ones if they were shared."""
        return sum(1 for block_id in block_ids if not self._num_holders[block_id])

    def find(self, block_hash: BlockHash) -> int | None:
        return self._block_of.get(block_hash)

    def register(self, block_id: int, block_hash: BlockHash) -> None:
        """Make a held block findable; where another block has that hash already, that one stays."""
        if not self._num_holders[block_id]:
            raise ValueError(f"block {block_id} is registered, but nobody holds it")
        if block_hash in self._block_of or self._hash_of[block_id] is not None:
            return
        self._block_of[block_hash] = block_id
        self._hash_of[block_id] = block_hash

    def forget(self, block_id: int, block_hash: BlockHash) -> bool:
        """Make the block unfindable if it still carries that hash. True if it did."""
        if self._hash_of[block_id] != block_hash:
            return False
        self._drop_hash(block_id)
        if not self._num_holders[block_id]:
            del self._cached[block_id]
            self._blank.append(block_id)
        return True

    def forget_all(self) -> None:
        """Nothing can be found any more; who holds a block keeps it."""
        self._blank += reversed(self._cached)
        self._cached.clear()
        self._block_of.clear()
        self._hash_of = [None] * self.num_blocks

    def _drop_hash(self, block_id: int) -> None:
        block_hash = self._hash_of[block_id]
        if block_hash is not None:
            del self._block_of[block_hash]
            self._hash_of[block_id] = None
