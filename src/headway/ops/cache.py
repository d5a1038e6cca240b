"""Where keys and values live: allocation of a KVCache, the same for every backend."""

from __future__ import annotations

import numpy as np

from headway.ops.interface import KV_TILE, KVCache
from headway.ops.memory import aligned_zeros

STORED_AS: dict[str, type[np.generic]] = {"float32": np.float32, "bfloat16": np.uint16}
_KV_STORED_AS = {**STORED_AS, "int8": np.uint8}


def new_kv_cache(
    num_layers: int, num_blocks: int, block_size: int, num_kv_heads: int, head_dim: int, dtype: str
) -> KVCache:
    """An empty cache. Pages are mapped by the system only when first written.

    Raises ValueError for a dtype, block size or head size that the layout cannot hold.
    """
    _check_sizes(num_layers, num_blocks, block_size, num_kv_heads, head_dim, dtype)
    num_tiles = num_blocks * block_size // KV_TILE
    lead = (num_layers, num_tiles, num_kv_heads)
    key_shape: tuple[int, ...]
    value_shape: tuple[int, ...]
    if dtype == "bfloat16":
        key_shape = (*lead, head_dim // 2, KV_TILE, 2)
        value_shape = (*lead, KV_TILE // 2, head_dim, 2)
    elif dtype == "int8":
        key_shape = (*lead, head_dim // 4 + 2, KV_TILE, 4)
        value_shape = (*lead, KV_TILE // 4, head_dim, 4)
    else:
        key_shape = (*lead, head_dim, KV_TILE)
        value_shape = (*lead, KV_TILE, head_dim)
    keys = aligned_zeros(key_shape, _KV_STORED_AS[dtype])
    values = aligned_zeros(value_shape, _KV_STORED_AS[dtype])
    return KVCache(keys, values, block_size, num_blocks, dtype)


def _check_sizes(
    num_layers: int, num_blocks: int, block_size: int, num_kv_heads: int, head_dim: int, dtype: str
) -> None:
    if dtype not in _KV_STORED_AS:
        raise ValueError(f"a KV cache holds {' or '.join(_KV_STORED_AS)}, not {dtype!r}")
    if block_size < 1 or block_size % KV_TILE:
        raise ValueError(f"block_size must be a multiple of {KV_TILE}, got {block_size}")
    if head_dim < 2 or head_dim % 2:
        raise ValueError(f"head_dim must be even, got {head_dim}")
    if dtype == "int8" and head_dim % 4:
        raise ValueError(f"an int8 KV cache needs a head_dim of a multiple of 4, got {head_dim}")
    if min(num_layers, num_blocks, num_kv_heads) < 1:
        raise ValueError(
            "a KV cache needs at least one layer, block and head, got "
            f"{num_layers} layers, {num_blocks} blocks, {num_kv_heads} heads"
        )
