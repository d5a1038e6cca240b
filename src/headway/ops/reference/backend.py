"""The backend made of the twins: slow, and right by inspection."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headway.ops import cache as kv_cache
from headway.ops import checks
from headway.ops.bfloat16 import as_float32, to_bf16
from headway.ops.grouped import need_grouped
from headway.ops.interface import (
    F32,
    I32,
    I64,
    U64,
    GroupedWeight,
    KVCache,
    PackedLinear,
    Raw,
    TokenBatch,
    Weight,
)
from headway.ops.program import Program
from headway.ops.reference import argmax as argmax_twin
from headway.ops.reference import (
    attention,
    embed,
    int4,
    linear,
    linear_grouped,
    linear_int8,
    log_softmax,
    rms_norm,
    rope,
    silu_mul,
)
from headway.ops.reference import sample as sample_twin
from headway.ops.stepwise import StepwisePass

LAYOUT = "reference/rows/v1"


class ReferenceOps:
    """`Ops` in numpy. Bits do not depend on the batch here either: every row is computed alone."""

    name = "reference"
    num_threads = 1

    def new_kv_cache(
        self,
        num_layers: int,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: str,
    ) -> KVCache:
        return kv_cache.new_kv_cache(
            num_layers, num_blocks, block_size, num_kv_heads, head_dim, dtype
        )

    def compile(self, program: Program) -> StepwisePass:
        return StepwisePass(program, self)

    def pack_linear(
        self,
        weight: Weight,
        bias: F32 | None,
        dtype: str,
        *,
        on_packed: Callable[[Raw], None] | None = None,
    ) -> PackedLinear:
        parts = checks.need_weight(weight, bias, dtype)
        rows = as_float32(np.concatenate(parts))
        if on_packed is not None:
            for part in parts:
                on_packed(part)
        if dtype in ("int8", "int4"):
            quantize = linear_int8.quantize_rows if dtype == "int8" else int4.quantize_rows
            whole, scales = quantize(rows)
            return PackedLinear(whole, bias, len(rows), rows.shape[1], dtype, LAYOUT, scales)
        data: Raw = to_bf16(rows) if dtype == "bfloat16" else rows
        return PackedLinear(data, bias, len(rows), rows.shape[1], dtype, LAYOUT)

    def as_table(self, weight: PackedLinear) -> Raw | None:
        return weight.data if weight.dtype in checks.WEIGHT_DTYPES else None

    def pack_grouped(self, weight: GroupedWeight, bias: F32 | None) -> PackedLinear:
        need_grouped(weight, bias)
        rows, width = weight.numbers.shape
        return PackedLinear(
            weight.numbers, bias, rows, width, weight.format, LAYOUT, weight.factors, weight
        )

    def linear(self, x: F32, weight: PackedLinear, out: F32, *, accumulate: bool = False) -> None:
        checks.need_linear(x, weight, out, LAYOUT)
        if weight.grouped is not None:
            multiply = linear_grouped.linear
        else:
            multiply = linear.linear if weight.dtype in checks.WEIGHT_DTYPES else linear_int8.linear
        multiply(x, weight, out, accumulate=accumulate)

    def embed(self, table: Raw, token_ids: I32, out: F32) -> None:
        checks.need_embed(table, token_ids, out)
        embed.embed(table, token_ids, out)

    def rms_norm(self, x: F32, weight: F32, eps: float, out: F32) -> None:
        checks.need_array("x", x, "float32", (None, None))
        checks.need_array("weight", weight, "float32", (x.shape[1],))
        checks.need_array("out", out, "float32", x.shape)
        for row, result in zip(x, out, strict=True):
            rms_norm.rms_norm(row, weight, eps, result)

    def rope_and_store(
        self,
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
        checks.need_layer(cache, layer)
        checks.need_qkv(qkv, cache, num_heads)
        checks.need_rope(qkv, positions, kv_rows, cos, sin, cache)
        for name, weight in (("q_norm", q_norm), ("k_norm", k_norm)):
            if weight is not None:
                checks.need_array(name, weight, "float32", (cache.head_dim,))
        rope.rope_and_store(
            qkv,
            positions,
            kv_rows,
            cos,
            sin,
            cache,
            layer,
            num_heads=num_heads,
            q_norm=q_norm,
            k_norm=k_norm,
            eps=eps,
            interleaved=interleaved,
        )

    def paged_attention(
        self,
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
        checks.need_layer(cache, layer)
        checks.need_qkv(qkv, cache, num_heads)
        checks.need_batch(batch, cache, len(qkv))
        checks.need(window >= 0, f"window must be at least 0 (0: off), got {window}")
        checks.need_array("out", out, "float32", (len(qkv), num_heads * cache.head_dim))
        attention.paged_attention(
            qkv, cache, layer, batch, num_heads=num_heads, scale=scale, window=window, out=out
        )

    def silu_mul(self, gate_up: F32, out: F32) -> None:
        checks.need_array("out", out, "float32", (None, None))
        checks.need_array("gate_up", gate_up, "float32", (len(out), 2 * out.shape[1]))
        silu_mul.silu_mul(gate_up, out)

    def argmax(self, logits: F32, out: I32) -> None:
        checks.need_logits(logits)
        checks.need_array("out", out, "int32", (len(logits),))
        argmax_twin.argmax(logits, out)

    def log_softmax(self, logits: F32, out: F32) -> None:
        checks.need_logits(logits)
        checks.need_array("out", out, "float32", logits.shape)
        for row, result in zip(logits, out, strict=True):
            log_softmax.log_softmax(row, result)

    def sample(
        self,
        logits: F32,
        temperature: F32,
        top_k: I32,
        top_p: F32,
        min_p: F32,
        seeds: U64,
        positions: I64,
        out: I32,
    ) -> None:
        checks.need_logits(logits)
        checks.need_sampling(len(logits), temperature, top_k, top_p, min_p, seeds, positions)
        checks.need_array("out", out, "int32", (len(logits),))
        sample_twin.sample(logits, temperature, top_k, top_p, min_p, seeds, positions, out)
