"""Twin of `rope_and_store`: rotary position embedding (Su et al., 2021) and the cache write."""

from __future__ import annotations

import numpy as np

from headway.ops.interface import F32, I32, I64, KVCache
from headway.ops.reference.kv_layout import write_token
from headway.ops.reference.rms_norm import rms_norm


def rope_and_store(
    qkv: F32,
    positions: I32,
    kv_rows: I64,
    cos: F32,
    sin: F32,
    cache: KVCache,
    layer: int,
    *,
    num_heads: int,
    q_norm: F32 | None = None,
    k_norm: F32 | None = None,
    eps: float = 1e-6,
    interleaved: bool = False,
) -> None:
    """Rotate q and k of each token, leave q in `qkv`, store k and v. Shapes: see `Ops`."""
    num_kv_heads = cache.num_kv_heads
    for row, position, kv_row in zip(qkv, positions, kv_rows, strict=True):
        heads = row.reshape(num_heads + 2 * num_kv_heads, cache.head_dim)
        query, key, value = np.split(heads, [num_heads, num_heads + num_kv_heads])
        for part, weight in ((query, q_norm), (key, k_norm)):
            if weight is not None:
                rms_norm(part, weight, eps, part)
            part[:] = rotate(part, cos[position], sin[position], interleaved)
        write_token(cache, layer, kv_row, key, value)


def rotate(heads: F32, cos: F32, sin: F32, interleaved: bool) -> F32:
    """Turn each pair (a, b) of `heads` [H, head_dim] to (a cos - b sin, b cos + a sin).

    cos, sin [rotary_dim / 2]; dimensions past rotary_dim stay as they are.
    """
    half = len(cos)
    if interleaved:
        first, second = slice(0, 2 * half, 2), slice(1, 2 * half, 2)
    else:
        first, second = slice(0, half), slice(half, 2 * half)
    rotated = heads.copy()
    rotated[:, first] = heads[:, first] * cos - heads[:, second] * sin
    rotated[:, second] = heads[:, second] * cos + heads[:, first] * sin
    return rotated
