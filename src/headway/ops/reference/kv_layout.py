"""The KV cache's tile layout (see `KVCache`), one token at a time."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headway.ops.bfloat16 import from_bf16, to_bf16
from headway.ops.interface import F32, KV_TILE, KVCache
from headway.ops.reference.linear_int8 import quantize_rows

_ZERO_POINT = 128


def write_token(cache: KVCache, layer: int, kv_row: int, key: F32, value: F32) -> None:
    """Store key and value [kv_heads, head_dim] of one token, rounded to the cache's dtype."""
    tile, place = divmod(int(kv_row), KV_TILE)
    keys, values = cache.keys[layer, tile], cache.values[layer, tile]
    if cache.dtype == "bfloat16":
        keys[:, :, place, :] = to_bf16(key).reshape(len(key), -1, 2)
        values[:, place // 2, :, place % 2] = to_bf16(value)
    elif cache.dtype == "int8":
        key_scales, value_scales = _scales(keys)
        whole, key_scales[:, place] = quantize_rows(key)
        keys[:, :-2, place, :] = _to_bytes(whole).reshape(len(key), -1, 4)
        whole, value_scales[:, place] = quantize_rows(value)
        values[:, place // 4, :, place % 4] = _to_bytes(whole)
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
    if cache.dtype == "int8":
        key_scales, value_scales = (scales[tiles, :, places] for scales in _scales(keys))
        fours = keys[tiles, :, :-2, places, :]
        key = _from_bytes(fours).reshape(len(kv_rows), cache.num_kv_heads, cache.head_dim)
        value = _from_bytes(values[tiles, :, places // 4, :, places % 4])
        return key * key_scales[..., None], value * value_scales[..., None]
    return keys[tiles, :, :, places], values[tiles, :, places, :]


def _scales(keys: npt.NDArray[np.uint8]) -> tuple[F32, F32]:
    """Views [..., kv_heads, 16] of the scales behind the keys [..., kv_heads, steps, 16, 4]."""
    scales = keys[..., -2:, :, :].view(np.float32)[..., 0]
    return scales[..., 0, :], scales[..., 1, :]


def _to_bytes(whole: npt.NDArray[np.int8]) -> npt.NDArray[np.uint8]:
    return (whole.astype(np.int16) + _ZERO_POINT).astype(np.uint8)


def _from_bytes(stored: npt.NDArray[np.uint8]) -> F32:
    return stored.astype(np.float32) - np.float32(_ZERO_POINT)
