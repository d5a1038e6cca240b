"""Twin of `paged_attention`: softmax(q k^T * scale) v over a sequence's cached tokens."""

from __future__ import annotations

import numpy as np

from headway.ops.bfloat16 import round_to_bf16
from headway.ops.interface import F32, I32, KVCache, TokenBatch
from headway.ops.reference.kv_layout import read_tokens


def paged_attention(
    qkv: F32,
    cache: KVCache,
    layer: int,
    batch: TokenBatch,
    *,
    num_heads: int,
    scale: float,
    window: int,
    out: F32,
) -> None:
    """Each token attends to the cached tokens of its own sequence at positions up to its own."""
    queries = qkv[:, : num_heads * cache.head_dim].reshape(-1, num_heads, cache.head_dim)
    if cache.dtype == "bfloat16":
        queries = round_to_bf16(queries)
    spans = zip(batch.chunk_starts[:-1], batch.chunk_starts[1:], batch.block_tables, strict=True)
    for start, end, block_table in spans:
        for token in range(start, end):
            position = int(batch.positions[token])
            first = max(0, position - window + 1) if window else 0
            kv_rows = rows_of(block_table, first, position, cache.block_size)
            keys, values = read_tokens(cache, layer, kv_rows)
            out[token] = attend(queries[token], keys, values, scale).reshape(-1)


def attend(query: F32, keys: F32, values: F32, scale: float) -> F32:
    """query [heads, D]; keys, values [n, kv_heads, D]; consecutive query heads share a kv head."""
    group = len(query) // keys.shape[1]
    result = np.empty_like(query)
    for head, vector in enumerate(query):
        scores = keys[:, head // group] @ vector * np.float32(scale)
        weights = np.exp(scores - scores.max())
        result[head] = weights @ values[:, head // group] / weights.sum()
    return result


def rows_of(block_table: I32, first: int, last: int, block_size: int) -> np.ndarray:
    """kv rows of positions first ... last of the sequence with this block table."""
    positions = np.arange(first, last + 1, dtype=np.int64)
    return (
        block_table[positions // block_size].astype(np.int64) * block_size + positions % block_size
    )
