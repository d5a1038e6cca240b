"""The forward pass of every served family, once, over Ops."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from headway.model.rope import RopeTables, identity_tables
from headway.model.shape import ModelConfig
from headway.ops.interface import F32, KVCache, Ops, PackedLinear, Raw, TokenBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One layer; q, k, v are one matrix and gate, up another, so that each is one product."""

    attention_norm: F32
    qkv: PackedLinear  # [(heads + 2 kv_heads) * head_dim, hidden]
    o: PackedLinear
    mlp_norm: F32
    gate_up: PackedLinear  # [2 * intermediate, hidden]
    down: PackedLinear
    q_norm: F32 | None = None
    k_norm: F32 | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderWeights:
    """Granite's multipliers are already in: in embedding, o, down and lm_head."""

    embedding: Raw  # [vocab, hidden], float32 or bfloat16
    layers: tuple[LayerWeights, ...]
    final_norm: F32
    lm_head: PackedLinear
    rope_divisors: F32 | None = None


class Decoder:
    """Token ids to logits. One thread at a time: scratch memory is reused between calls."""

    def __init__(self, config: ModelConfig, weights: DecoderWeights, ops: Ops) -> None:
        self.config = config
        self._weights = weights
        self._ops = ops
        self._scratch = _Scratch()
        self._rope = RopeTables(config.rope, config.max_position_embeddings, weights.rope_divisors)
        self._identity = identity_tables(self._rope)

    def forward(self, batch: TokenBatch, cache: KVCache) -> F32:
        """Logits float32 [R, vocab] of `batch.logit_rows`; valid until the next call."""
        return self.logits(self.hidden_states(batch, cache))

    def hidden_states(self, batch: TokenBatch, cache: KVCache) -> F32:
        """Normed hidden states of `batch.logit_rows`, a new float32 [R, hidden].

        Writes the keys and values of all T tokens to the cache. Raises ValueError where the batch
        or the cache does not fit the model.
        """
        self._check_cache(cache)
        num_tokens = len(batch.token_ids)
        rows = batch.logit_rows
        if len(rows) and not 0 <= rows.min() <= rows.max() < num_tokens:
            raise ValueError(f"logit_rows must lie in [0, {num_tokens}), got {rows.tolist()}")
        x = self._scratch.take("x", num_tokens, self.config.hidden_size)
        self._ops.embed(self._weights.embedding, batch.token_ids, x)
        self._reach(batch)
        for index, layer in enumerate(self._weights.layers):
            attended = self._attend(x, layer, index, batch, cache)
            if index == self.config.num_layers - 1:
                x, attended = x[rows], attended[rows]  # no later attention reads the others
            self._ops.linear(attended, layer.o, x, accumulate=True)
            self._feed_forward(x, layer)
        self._ops.rms_norm(x, self._weights.final_norm, self.config.rms_norm_eps, x)
        return x

    def logits(self, hidden: F32) -> F32:
        """float32 [R, vocab] of what `hidden_states` gave, or of some of its rows.

        The array is scratch memory: the caller may change it, and the next call overwrites it.
        """
        out = self._scratch.take("logits", len(hidden), self.config.vocab_size)
        self._ops.linear(hidden, self._weights.lm_head, out)
        return out

    def _attend(
        self, x: F32, layer: LayerWeights, index: int, batch: TokenBatch, cache: KVCache
    ) -> F32:
        """attention(norm(x)), in scratch memory"""
        config, ops = self.config, self._ops
        normed = self._scratch.take("normed", *x.shape)
        qkv = self._scratch.take("wide", len(x), config.q_size + 2 * config.kv_size)
        attended = self._scratch.take("attended", len(x), config.q_size)
        ops.rms_norm(x, layer.attention_norm, config.rms_norm_eps, normed)
        ops.linear(normed, layer.qkv, qkv)
        cos, sin = self._tables(index)
        ops.rope_and_store(
            qkv,
            batch.positions,
            batch.kv_rows,
            cos,
            sin,
            cache,
            index,
            num_heads=config.num_heads,
            q_norm=layer.q_norm,
            k_norm=layer.k_norm,
            eps=config.rms_norm_eps,
        )
        ops.paged_attention(
            qkv,
            cache,
            index,
            batch,
            num_heads=config.num_heads,
            scale=config.attention_scale,
            window=config.windows[index],
            out=attended,
        )
        return attended

    def _feed_forward(self, x: F32, layer: LayerWeights) -> None:
        """x += down(silu(gate(norm(x))) * up(norm(x)))"""
        config, ops = self.config, self._ops
        normed = self._scratch.take("normed", *x.shape)
        gate_up = self._scratch.take("wide", len(x), 2 * config.intermediate_size)
        inner = self._scratch.take("inner", len(x), config.intermediate_size)
        ops.rms_norm(x, layer.mlp_norm, config.rms_norm_eps, normed)
        ops.linear(normed, layer.gate_up, gate_up)
        ops.silu_mul(gate_up, inner)
        ops.linear(inner, layer.down, x, accumulate=True)

    def _tables(self, layer: int) -> tuple[F32, F32]:
        if self.config.rope_layers[layer]:
            return self._rope.cos, self._rope.sin
        return self._identity

    def _reach(self, batch: TokenBatch) -> None:
        if len(batch.positions) and int(batch.positions.max()) >= len(self._rope.cos):
            self._rope.reach(int(batch.positions.max()) + 1)
            self._identity = identity_tables(self._rope)

    def _check_cache(self, cache: KVCache) -> None:
        config = self.config
        found = (cache.num_layers, cache.num_kv_heads, cache.head_dim)
        wanted = (config.num_layers, config.num_kv_heads, config.head_dim)
        if found != wanted:
            raise ValueError(
                f"the KV cache has {found} layers, key-value heads and head size, "
                f"the model needs {wanted}"
            )


class _Scratch:
    """Float32 buffers by name that only grow, so that a step allocates nothing."""

    def __init__(self) -> None:
        self._buffers: dict[str, F32] = {}

    def take(self, name: str, rows: int, columns: int) -> F32:
        """A contiguous [rows, columns] view; its contents are whatever was there."""
        size = math.prod((rows, columns))
        buffer = self._buffers.get(name)
        if buffer is None or buffer.size < size:
            buffer = self._buffers[name] = np.empty(size, dtype=np.float32)
        return buffer[:size].reshape(rows, columns)
