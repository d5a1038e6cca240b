"""Sequences in a paged cache, and steps over any chunks of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headway.ops.catalog import normal
from headway.ops.interface import KVCache, Ops, TokenBatch


@dataclass(frozen=True)
class World:
    """Some sequences of random q, k, v, with a cache that already holds all their tokens."""

    ops: Ops
    cache: KVCache
    qkv: list[np.ndarray]  # per sequence [length, (heads + 2 kv_heads) * head_dim]
    tables: list[list[int]]
    num_heads: int

    def attend(self, chunks, *, window=0, num_threads_ops=None):
        """Attention over chunks (sequence, first, end): one array of rows per chunk."""
        batch, qkv = self.batch(chunks)
        head_dim = self.cache.head_dim
        out = np.full((len(qkv), self.num_heads * head_dim), np.nan, np.float32)
        ops = num_threads_ops or self.ops
        ops.paged_attention(
            qkv,
            self.cache,
            1,
            batch,
            num_heads=self.num_heads,
            scale=head_dim**-0.5,
            window=window,
            out=out,
        )
        return np.split(out, batch.chunk_starts[1:-1])

    def batch(self, chunks):
        positions = [np.arange(first, end, dtype=np.int32) for _, first, end in chunks]
        starts = np.cumsum([0, *(len(p) for p in positions)]).astype(np.int32)
        tables = np.full((len(chunks), max(map(len, self.tables))), -1, np.int32)
        for i, (sequence, _, end) in enumerate(chunks):
            used = -(-end // self.cache.block_size)
            tables[i, :used] = self.tables[sequence][:used]
        flat = np.concatenate(positions)
        qkv = np.concatenate([self.qkv[s][first:end] for s, first, end in chunks])
        nothing = np.zeros(len(flat), np.int32)
        return TokenBatch(nothing, flat, nothing.astype(np.int64), starts, tables, starts[1:]), qkv


def make_world(
    ops: Ops,
    seed: int,
    lengths,
    *,
    dtype,
    heads=3,
    kv_heads=1,
    head_dim=16,
    block_size=16,
    block_order=None,
    garbage=np.nan,
):
    """`garbage` fills every place of the cache that no token was written to."""
    rng = np.random.default_rng(seed)
    counts = [-(-length // block_size) for length in lengths]
    num_blocks = sum(counts) + 3
    cache = ops.new_kv_cache(2, num_blocks, block_size, kv_heads, head_dim, dtype)
    fill_with(cache, garbage)
    order = rng.permutation(num_blocks) if block_order is None else block_order(num_blocks)
    ends = np.cumsum(counts)
    tables = [list(order[end - n : end]) for n, end in zip(counts, ends, strict=True)]
    data = np.random.default_rng(seed + 1)  # the same whatever the order of the blocks
    qkv = [normal(data, n, (heads + 2 * kv_heads) * head_dim) for n in lengths]
    for rows, table in zip(qkv, tables, strict=True):
        store(ops, cache, rows, table, heads)
    return World(ops, cache, qkv, tables, heads)


def fill_with(cache: KVCache, garbage: float) -> None:
    """With int8 it is the scales that are garbage: NaN, or large."""
    bits = np.float32(garbage).view(np.uint32)
    byte = np.uint8(bits >> 24) if np.isfinite(garbage) else np.uint8(255)
    patterns = {"float32": garbage, "bfloat16": np.uint16(bits >> 16), "int8": byte}
    cache.keys[:] = patterns[cache.dtype]
    cache.values[:] = patterns[cache.dtype]


def store(ops: Ops, cache: KVCache, rows: np.ndarray, table: list[int], heads: int) -> None:
    positions = np.arange(len(rows), dtype=np.int32)
    blocks = np.array(table, np.int64)[positions // cache.block_size]
    kv_rows = blocks * cache.block_size + positions % cache.block_size
    flat = np.zeros((len(rows), cache.head_dim // 2), np.float32)
    ops.rope_and_store(
        rows, positions, kv_rows, np.cos(flat), np.sin(flat), cache, 1, num_heads=heads
    )
