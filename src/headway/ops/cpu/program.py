"""A program on the native side: one call for a whole forward pass."""

from __future__ import annotations

from headway.ops.cpu import _native
from headway.ops.interface import F32, KVCache, TokenBatch
from headway.ops.program import (
    Embed,
    Linear,
    Operation,
    PagedAttention,
    PickLogitRows,
    Program,
    RmsNorm,
    RopeAndStore,
    Rotation,
    SiluMul,
)


class NativePass:
    """A ForwardPass whose operations the kernels' own threads run one after another.

    Arguments are checked when it is made, and those of a batch once, when it is run.
    """

    def __init__(self, program: Program, native: _native.Backend) -> None:
        self._program = program  # keeps the weights, to which the native side holds pointers
        self._native = _native.Program(native)
        for buffer in program.buffers:
            self._native.add_buffer(buffer.columns)
        for operation in program.operations:
            self._add(operation)

    def run(self, batch: TokenBatch, cache: KVCache, rotation: Rotation, out: F32) -> None:
        self._native.run(
            batch.token_ids,
            batch.positions,
            batch.kv_rows,
            batch.chunk_starts,
            batch.block_tables,
            batch.logit_rows,
            cache.keys,
            cache.values,
            cache.block_size,
            rotation.cos,
            rotation.sin,
            rotation.identity_cos,
            rotation.identity_sin,
            self._program.result.index,
            out,
        )

    def measure_time(self, wanted: bool) -> None:
        self._native.measure_time(wanted)

    def take_times_ns(self) -> dict[str, float]:
        """Wall time by kind of operation since the last call, where `measure_time` is on."""
        return dict(self._native.take_times())

    def _add(self, operation: Operation) -> None:
        native = self._native
        match operation:
            case Embed(table, out):
                native.embed(table, out.index)
            case RmsNorm(x, weight, eps, out):
                native.rms_norm(x.index, weight, eps, out.index)
            case Linear():
                self._add_linear(operation)
            case SiluMul(gate_up, out):
                native.silu_mul(gate_up.index, out.index)
            case PickLogitRows(x, out):
                native.pick_logit_rows(x.index, out.index)
            case RopeAndStore() | PagedAttention():
                self._add_attention(operation)

    def _add_linear(self, operation: Linear) -> None:
        weight = operation.weight
        self._native.linear(
            operation.x.index,
            weight.data,
            weight.scales,
            weight.bias,
            weight.out_features,
            weight.in_features,
            weight.layout,
            operation.out.index,
            operation.accumulate,
        )

    def _add_attention(self, operation: RopeAndStore | PagedAttention) -> None:
        heads = operation.heads
        place = (operation.qkv.index, operation.layer)
        sizes = (heads.num_heads, heads.num_kv_heads, heads.head_dim)
        if isinstance(operation, PagedAttention):
            self._native.attention(
                *place, *sizes, operation.scale, operation.window, operation.out.index
            )
        else:
            self._native.rope_and_store(
                *place,
                *sizes,
                operation.rotates,
                operation.q_norm,
                operation.k_norm,
                operation.eps,
            )
