"""`Ops` on the native CPU kernels. Arguments are checked on the other side, in native/bind."""

from __future__ import annotations

from collections.abc import Callable

from headway.ops import cache as kv_cache
from headway.ops.cpu import _native
from headway.ops.cpu.packing import as_table, pack_grouped, pack_linear
from headway.ops.cpu.program import NativePass
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


def available_isas() -> list[str]:
    """Instruction sets that this machine can run, best first, emulations last."""
    return list(_native.available_isas())


class CpuOps:
    """Kernels of one instruction set on threads of their own.

    `isa` None takes the best that the machine can run; `num_threads` None takes as many as there
    are processors that the process may use. Raises ValueError with a sentence when the machine or
    the build lacks `isa`. After os.fork() the child computes on the calling thread alone.
    """

    def __init__(self, isa: str | None = None, num_threads: int | None = None) -> None:
        if num_threads is not None and num_threads < 1:
            raise ValueError(f"num_threads must be at least 1, got {num_threads}")
        self._native = _native.Backend(_checked_isa(isa), num_threads or 0)
        self.name = f"cpu/{self._native.isa}"

    @property
    def isa(self) -> str:
        return self._native.isa

    @property
    def num_threads(self) -> int:
        return self._native.num_threads

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

    def compile(self, program: Program) -> NativePass:
        return NativePass(program, self._native)

    def pack_linear(
        self,
        weight: Weight,
        bias: F32 | None,
        dtype: str,
        *,
        on_packed: Callable[[Raw], None] | None = None,
    ) -> PackedLinear:
        return pack_linear(self._native, weight, bias, dtype, on_packed)

    def as_table(self, weight: PackedLinear) -> Raw | None:
        return as_table(weight)

    def pack_grouped(self, weight: GroupedWeight, bias: F32 | None) -> PackedLinear:
        return pack_grouped(self._native, weight, bias)

    def linear(self, x: F32, weight: PackedLinear, out: F32, *, accumulate: bool = False) -> None:
        self._native.linear(
            x,
            weight.data,
            weight.scales,
            weight.bias,
            weight.out_features,
            weight.in_features,
            weight.layout,
            out,
            accumulate,
        )

    def embed(self, table: Raw, token_ids: I32, out: F32) -> None:
        self._native.embed(table, token_ids, out)

    def rms_norm(self, x: F32, weight: F32, eps: float, out: F32) -> None:
        self._native.rms_norm(x, weight, eps, out)

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
        self._native.rope_and_store(
            qkv,
            positions,
            kv_rows,
            cos,
            sin,
            cache.keys,
            cache.values,
            cache.block_size,
            layer,
            num_heads,
            q_norm,
            k_norm,
            eps,
            interleaved,
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
        self._native.paged_attention(
            qkv,
            cache.keys,
            cache.values,
            cache.block_size,
            layer,
            batch.positions,
            batch.chunk_starts,
            batch.block_tables,
            num_heads,
            scale,
            window,
            out,
        )

    def silu_mul(self, gate_up: F32, out: F32) -> None:
        self._native.silu_mul(gate_up, out)

    def argmax(self, logits: F32, out: I32) -> None:
        self._native.argmax(logits, out)

    def log_softmax(self, logits: F32, out: F32) -> None:
        self._native.log_softmax(logits, out)

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
        self._native.sample(logits, temperature, top_k, top_p, min_p, seeds, positions, out)


def _checked_isa(isa: str | None) -> str:
    available = available_isas()
    if isa is None:
        return available[0]
    if isa in available:
        return isa
    if isa in _native.known_isas():
        raise ValueError(
            f"this machine or build cannot run {isa!r}; it can: {', '.join(available)}"
        )
    raise ValueError(
        f"there is no instruction set {isa!r}; choose one of {', '.join(_native.known_isas())}"
    )
