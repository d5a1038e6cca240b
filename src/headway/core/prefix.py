"""The prefix cache: full blocks are named by a hash chained over everything before them."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable
from typing import Protocol

from headway.core.blocks import BlockHash, BlockPool
from headway.core.request import Request
from headway.core.sequence import Sequence
from headway.core.step import Chunk


class PrefixCache(Protocol):
    """Finds computed blocks by their tokens."""

    def find(self, sequence: Sequence) -> list[int]:
        """Blocks that already hold the sequence's first tokens, at least one token short of all."""
        return []

    def register(self, sequences: Iterable[Sequence]) -> None:
        """Make findable what is full, known, and computed once the steps in flight have run."""
        return

    def forget(self, chunks: Iterable[Chunk]) -> list[int]:
        """Make unfindable what these chunks were to compute; returns the blocks concerned."""
        return []

    def reset(self) -> None:
        """Make everything unfindable."""
        return


class NoPrefixCache(PrefixCache):
    """Finds nothing, remembers nothing."""


class HashedPrefixCache(PrefixCache):
    """Block i of a sequence is named sha256(name of block i - 1, tokens of block i).

    The root is a hash over salt, the request's cache salt and adapter, so that different ones
    never meet. sha256, because a collision would show one user another's text.
    """

    def __init__(self, pool: BlockPool, block_size: int, salt: str | bytes) -> None:
        self._pool = pool
        self._block_size = block_size
        self._salt = salt.encode() if isinstance(salt, str) else salt
        self._pack = struct.Struct(f"<{block_size}q").pack
        self._blank = hashlib.sha256()  # to copy one is cheaper than to make one

    def find(self, sequence: Sequence) -> list[int]:
        # Rows of cached tokens are not computed, so they cannot report their logprobs.
        if sequence.request.sampling.prompt_logprobs is not None:
            return []
        num_blocks = (sequence.num_tokens - 1) // self._block_size
        found: list[int] = []
        for block_hash in self._hashes(sequence, num_blocks)[:num_blocks]:
            block_id = self._pool.find(block_hash)
            if block_id is None:
                break
            found.append(block_id)
        return found

    def register(self, sequences: Iterable[Sequence]) -> None:
        block_size, register = self._block_size, self._pool.register
        for sequence in sequences:
            first = sequence.num_registered_blocks
            # First the test that is cheap and nearly always enough: a decode seldom fills a block.
            if sequence.num_computed_tokens // block_size <= first:
                continue
            num_done = min(len(sequence.token_ids), sequence.num_computed_tokens)
            num_blocks = num_done // block_size
            if num_blocks > first:
                hashes, block_ids = self._hashes(sequence, num_blocks), sequence.block_ids
                for place in range(first, num_blocks):
                    register(block_ids[place], hashes[place])
                sequence.num_registered_blocks = num_blocks

    def forget(self, chunks: Iterable[Chunk]) -> list[int]:
        forgotten: list[int] = []
        for chunk in chunks:
            first = chunk.first_position // self._block_size
            end = (chunk.first_position + chunk.num_tokens) // self._block_size
            # Hashes may be fewer: a block whose last token is in flight has no name yet.
            for place, name in enumerate(chunk.sequence.block_hashes[first:end], first):
                if self._pool.forget(chunk.block_ids[place], name):
                    forgotten += [chunk.block_ids[place]]
        return forgotten

    def reset(self) -> None:
        self._pool.forget_all()

    def _hashes(self, sequence: Sequence, num_blocks: int) -> list[BlockHash]:
        """The sequence's block names, made as far as `num_blocks`; tokens never change."""
        hashes, block_size = sequence.block_hashes, self._block_size
        if len(hashes) >= num_blocks:
            return hashes
        token_ids, pack, copy = sequence.token_ids, self._pack, self._blank.copy
        parent = hashes[-1] if hashes else self._root(sequence.request)
        for start in range(len(hashes) * block_size, num_blocks * block_size, block_size):
            tokens = token_ids[start : start + block_size]
            name = copy()
            name.update(parent + pack(*tokens))
            parent = BlockHash(name.digest())
            hashes.append(parent)
        return hashes

    def _root(self, request: Request) -> BlockHash:
        digest = hashlib.sha256()
        for part in (self._salt, request.adapter.encode(), request.cache_salt.encode()):
            digest.update(len(part).to_bytes(8, "little") + part)
        return BlockHash(digest.digest())
