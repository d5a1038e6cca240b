"""A program run operation by operation on any Ops."""

from __future__ import annotations

import numpy as np

from headway.ops.interface import F32, KVCache, Ops, TokenBatch
from headway.ops.program import (
    Embed,
    Linear,
    PagedAttention,
    PickLogitRows,
    Program,
    RmsNorm,
    RopeAndStore,
    Rotation,
    SiluMul,
)


class StepwisePass:
    """A ForwardPass for backends that know single operations only."""

    def __init__(self, program: Program, ops: Ops) -> None:
        self._program = program
        self._ops = ops

    def run(self, batch: TokenBatch, cache: KVCache, rotation: Rotation, out: F32) -> None:
        rows = batch.logit_rows
        if len(rows) and not 0 <= rows.min() <= rows.max() < len(batch.token_ids):
            raise ValueError(
                f"logit_rows must lie in [0, {len(batch.token_ids)}), got {rows.tolist()}"
            )
        _Run(self._program, self._ops, batch, cache, rotation, out).all()


class _Run:
    def __init__(
        self,
        program: Program,
        ops: Ops,
        batch: TokenBatch,
        cache: KVCache,
        rotation: Rotation,
        out: F32,
    ) -> None:
        self._program, self._ops, self._batch = program, ops, batch
        self._cache, self._rotation = cache, rotation
        self._num_rows = len(batch.token_ids)
        most = max(self._num_rows, len(batch.logit_rows))  # a row may be wanted more than once
        self._arrays = [np.empty((most, buffer.columns), np.float32) for buffer in program.buffers]
        self._arrays[program.result.index] = out

    def all(self) -> None:
        for operation in self._program.operations:
            match operation:
                case RopeAndStore():
                    self._rope_and_store(operation)
                case PagedAttention():
                    self._attention(operation)
                case PickLogitRows(x, out):
                    picked = self._arrays[x.index][self._batch.logit_rows]
                    self._num_rows = len(picked)
                    self._arrays[out.index] = picked
                case _:
                    self._compute_rows(operation)

    def _compute_rows(self, operation: Embed | RmsNorm | Linear | SiluMul) -> None:
        out = self._rows(operation.out.index)
        match operation:
            case Embed(table, _):
                self._ops.embed(table, self._batch.token_ids, out)
            case RmsNorm(x, weight, eps, _):
                self._ops.rms_norm(self._rows(x.index), weight, eps, out)
            case Linear(x, packed, _, accumulate):
                self._ops.linear(self._rows(x.index), packed, out, accumulate=accumulate)
            case SiluMul(gate_up, _):
                self._ops.silu_mul(self._rows(gate_up.index), out)

    def _rope_and_store(self, operation: RopeAndStore) -> None:
        tables = self._rotation
        self._ops.rope_and_store(
            self._rows(operation.qkv.index),
            self._batch.positions,
            self._batch.kv_rows,
            tables.cos if operation.rotates else tables.identity_cos,
            tables.sin if operation.rotates else tables.identity_sin,
            self._cache,
            operation.layer,
            num_heads=operation.heads.num_heads,
            q_norm=operation.q_norm,
            k_norm=operation.k_norm,
            eps=operation.eps,
        )

    def _attention(self, operation: PagedAttention) -> None:
        self._ops.paged_attention(
            self._rows(operation.qkv.index),
            self._cache,
            operation.layer,
            self._batch,
            num_heads=operation.heads.num_heads,
            scale=operation.scale,
            window=operation.window,
            out=self._rows(operation.out.index),
        )

    def _rows(self, index: int) -> F32:
        array = self._arrays[index]
        return array[: self._num_rows]
