"""Sentences for bad arguments, for the backends that are written in Python."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from headway.ops.interface import KVCache, PackedLinear, TokenBatch

NUMPY_NAMES = {"float32": np.float32, "int32": np.int32, "int64": np.int64, "uint64": np.uint64}
WEIGHT_DTYPES = {"float32": np.dtype(np.float32), "bfloat16": np.dtype(np.uint16)}
PACKED_DTYPES = (*WEIGHT_DTYPES, "int8", "int4")


def need(holds: bool, sentence: str) -> None:
    if not holds:
        raise ValueError(sentence)


def need_array(name: str, array: Any, dtype: str, shape: tuple[int | None, ...]) -> None:
    """A C-contiguous array of this dtype; None in `shape` is any length."""
    if not isinstance(array, np.ndarray) or array.dtype != NUMPY_NAMES[dtype]:
        found = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(f"{name} must be a {dtype} array, got {found}")
    fits = array.ndim == len(shape) and all(
        wanted is None or have == wanted for have, wanted in zip(array.shape, shape, strict=True)
    )
    wanted_shape = ", ".join("any" if size is None else str(size) for size in shape)
    need(fits, f"{name} must have shape [{wanted_shape}], got {list(array.shape)}")
    need(array.flags.c_contiguous, f"{name} must be C-contiguous: pass np.ascontiguousarray of it")


def need_range(name: str, values: np.ndarray, low: int, high: int) -> None:
    """All of `values` in [low, high)."""
    if values.size and (values.min() < low or values.max() >= high):
        wrong = values[(values < low) | (values >= high)][0]
        raise ValueError(f"{name} must lie in [{low}, {high}), got {wrong}")


def need_weight(weight: Any, bias: Any, dtype: str) -> tuple[np.ndarray, ...]:
    """Its parts: one, unless `weight` is a tuple of matrices to stack."""
    names = f"{', '.join(PACKED_DTYPES[:-1])} or {PACKED_DTYPES[-1]}"
    need(dtype in PACKED_DTYPES, f"a weight is stored as {names}, not {dtype!r}")
    parts: tuple[Any, ...] = weight if isinstance(weight, tuple) else (weight,)
    for part in parts:
        _need_matrix(part)
    need(
        len({(part.dtype, part.shape[1]) for part in parts}) == 1,
        "weights to stack must have one dtype and one in_features, "
        f"got {[(str(part.dtype), list(part.shape)) for part in parts]}",
    )
    if bias is not None:
        need_array("bias", bias, "float32", (sum(map(len, parts)),))
    return parts


def _need_matrix(weight: Any) -> None:
    if not isinstance(weight, np.ndarray) or weight.dtype not in WEIGHT_DTYPES.values():
        raise TypeError("weight must be a float32 array, or uint16 holding bfloat16")
    need(
        weight.ndim == 2 and min(weight.shape) > 0,
        f"weight must be [out_features, in_features], got {list(weight.shape)}",
    )


def need_embed(table: Any, token_ids: Any, out: Any) -> None:
    if not isinstance(table, np.ndarray) or table.dtype not in WEIGHT_DTYPES.values():
        raise TypeError("table must be a float32 array, or uint16 holding bfloat16")
    need(table.ndim == 2, f"table must be [vocabulary, width], got {list(table.shape)}")
    need_array("token_ids", token_ids, "int32", (None,))
    need_array("out", out, "float32", (len(token_ids), table.shape[1]))
    need_range("token_ids", token_ids, 0, len(table))


def need_scales(weight: PackedLinear) -> None:
    has_scales = weight.scales is not None
    need(
        has_scales or weight.dtype in WEIGHT_DTYPES,
        f"weight.scales must be given with {weight.dtype}, got None",
    )


def need_linear(x: Any, weight: PackedLinear, out: Any, layout: str) -> None:
    if weight.layout != layout:
        raise ValueError(
            f"the weight is packed as {weight.layout!r}, this backend reads {layout!r}"
        )
    need_scales(weight)
    need_array("x", x, "float32", (None, weight.in_features))
    need_array("out", out, "float32", (len(x), weight.out_features))
    need(not np.may_share_memory(x, out), "x and out must not overlap")


def need_layer(cache: KVCache, layer: int) -> None:
    need(
        0 <= layer < cache.num_layers,
        f"layer must lie in [0, {cache.num_layers}), got {layer}",
    )


def need_qkv(qkv: Any, cache: KVCache, num_heads: int) -> None:
    need(
        num_heads > 0 and num_heads % cache.num_kv_heads == 0,
        f"num_heads must be a positive multiple of kv_heads={cache.num_kv_heads}, got {num_heads}",
    )
    need_array("qkv", qkv, "float32", (None, (num_heads + 2 * cache.num_kv_heads) * cache.head_dim))


def need_rope(qkv: Any, positions: Any, kv_rows: Any, cos: Any, sin: Any, cache: KVCache) -> None:
    need_array("positions", positions, "int32", (len(qkv),))
    need_array("kv_rows", kv_rows, "int64", (len(qkv),))
    need_array("cos", cos, "float32", (None, None))
    need_array("sin", sin, "float32", cos.shape)
    need(
        2 * cos.shape[1] <= cache.head_dim,
        f"cos and sin turn {2 * cos.shape[1]} dimensions, a head has {cache.head_dim}",
    )
    need_range("positions", positions, 0, len(cos))
    need_range("kv_rows", kv_rows, 0, cache.num_blocks * cache.block_size)


def need_batch(batch: TokenBatch, cache: KVCache, num_tokens: int) -> None:
    """Chunks that cover all tokens, positions that rise by one, a block for every position."""
    starts, tables = batch.chunk_starts, batch.block_tables
    need_array("positions", batch.positions, "int32", (num_tokens,))
    need_array("chunk_starts", starts, "int32", (None,))
    need(
        len(starts) >= 1 and starts[0] == 0 and starts[-1] == num_tokens,
        f"chunk_starts must run from 0 to the number of tokens, {num_tokens}",
    )
    need_array("block_tables", tables, "int32", (len(starts) - 1, None))
    for i, (start, end) in enumerate(pairwise(starts)):
        need(start <= end, f"chunk_starts must not fall, chunk {i} runs from {start} to {end}")
        if start < end:
            _need_chunk(batch.positions[start:end], tables[i], cache)


def _need_chunk(positions: np.ndarray, table: np.ndarray, cache: KVCache) -> None:
    first, last = int(positions[0]), int(positions[-1])
    rising = np.arange(first, first + len(positions))
    need(first >= 0 and np.array_equal(positions, rising), "positions in a chunk must rise by one")
    needed = last // cache.block_size + 1
    need(
        needed <= len(table),
        f"position {last} needs {needed} blocks, the block table has {len(table)}",
    )
    need_range("block ids", table[:needed], 0, cache.num_blocks)


def need_logits(logits: Any) -> None:
    need_array("logits", logits, "float32", (None, None))
    need(logits.shape[1] > 0, "logits must have at least one column")


def need_sampling(
    rows: int, temperature: Any, top_k: Any, top_p: Any, min_p: Any, seeds: Any, positions: Any
) -> None:
    for name, array, dtype in (
        ("temperature", temperature, "float32"),
        ("top_k", top_k, "int32"),
        ("top_p", top_p, "float32"),
        ("min_p", min_p, "float32"),
        ("seeds", seeds, "uint64"),
        ("positions", positions, "int64"),
    ):
        need_array(name, array, dtype, (rows,))
    need(bool(np.all((temperature >= 0) & np.isfinite(temperature))), "temperature must be >= 0")
    need(bool(np.all(top_k >= 0)), "top_k must be at least 0 (0: off)")
    need(bool(np.all((top_p > 0) & (top_p <= 1))), "top_p must lie in (0, 1]")
    need(bool(np.all((min_p >= 0) & (min_p <= 1))), "min_p must lie in [0, 1]")
