"""The KV cache's tile layout (see `KVCache`), one token at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headway.ops.bfloat16 import from_bf16, to_bf16
from headway.ops.interface import F32, KV_TILE, KVCache


def write_token(cache: KVCache, layer: int, kv_row: int, key: F32, value: F32) -> None:
    """Store key and value [kv_heads, head_dim] of one token, rounded to the cache's dtype."""
    tile, place = divmod(int(kv_row), KV_TILE)
    keys, values = cache.keys[layer, tile], cache.values[layer, tile]
    if cache.dtype == "bfloat16":
        keys[:, :, place, :] = to_bf16(key).reshape(len(key), -1, 2)
        values[:, place // 2, :, place % 2] = to_bf16(value)
    else:
        keys[:, :, place] = key
        values[:, place, :] = value


def read_tokens(cache: KVCache, layer: int, kv_rows: npt.NDArray[np.int64]) -> tuple[F32, F32]:
    """Keys and values [n, kv_heads, head_dim] of the tokens at `kv_rows` [n], as float32."""
    tiles, places = np.divmod(kv_rows, KV_TILE)
    keys, values = cache.keys[layer], cache.values[layer]
    if cache.dtype == "bfloat16":
        pairs = from_bf16(keys[tiles, :, :, places, :])
        key = pairs.reshape(len(kv_rows), cache.num_kv_heads, cache.head_dim)
        return key, from_bf16(values[tiles, :, places // 2, :, places % 2])
    return keys[tiles, :, :, places], values[tiles, :, places, :]
