"""The forward pass of every served family, once, over Ops."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from headway.model.rope import RopeTables, rotation
from headway.model.shape import ModelConfig
from headway.ops.interface import F32, KVCache, Ops, PackedLinear, Raw, TokenBatch
from headway.ops.memory import aligned_zeros
from headway.ops.program import (
    Buffer,
    Embed,
    Heads,
    Linear,
    PagedAttention,
    PickLogitRows,
    Program,
    RmsNorm,
    RopeAndStore,
    Rotation,
    SiluMul,
)


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
        self._logits: F32 = np.empty(0, np.float32)
        self._rope = RopeTables(config.rope, config.max_position_embeddings, weights.rope_divisors)
        self._rotation = self._tables()
        self.forward_pass = ops.compile(write_program(config, weights))

    def forward(self, batch: TokenBatch, cache: KVCache) -> F32:
        """Logits float32 [R, vocab] of `batch.logit_rows`; valid until the next call."""
        return self.logits(self.hidden_states(batch, cache))

    def hidden_states(self, batch: TokenBatch, cache: KVCache) -> F32:
        """Normed hidden states of `batch.logit_rows`, a new float32 [R, hidden].

        Writes the keys and values of all T tokens to the cache. Raises ValueError where the batch
        or the cache does not fit the model.
        """
        self._check_cache(cache)
        self._reach(batch)
        out = np.empty((len(batch.logit_rows), self.config.hidden_size), np.float32)
        self.forward_pass.run(batch, cache, self._rotation, out)
        return out

    def logits(self, hidden: F32) -> F32:
        """float32 [R, vocab] of what `hidden_states` gave, or of some of its rows.

        The array is scratch memory: the caller may change it, and the next call overwrites it.
        """
        size = len(hidden) * self.config.vocab_size
        if self._logits.size < size:
            self._logits = aligned_zeros((size,), np.float32)
        out = self._logits[:size].reshape(len(hidden), self.config.vocab_size)
        self._ops.linear(hidden, self._weights.lm_head, out)
        return out

    def _reach(self, batch: TokenBatch) -> None:
        if len(batch.positions) and int(batch.positions.max()) >= len(self._rope.cos):
            self._rope.reach(int(batch.positions.max()) + 1)
            self._rotation = self._tables()

    def _tables(self) -> Rotation:
        return rotation(self._rope, has_still_layers=not all(self.config.rope_layers))

    def _check_cache(self, cache: KVCache) -> None:
        config = self.config
        found = (cache.num_layers, cache.num_kv_heads, cache.head_dim)
        wanted = (config.num_layers, config.num_kv_heads, config.head_dim)
        if found != wanted:
            raise ValueError(
                f"the KV cache has {found} layers, key-value heads and head size, "
                f"the model needs {wanted}"
            )


def write_program(config: ModelConfig, weights: DecoderWeights) -> Program:
    """The forward pass up to the last norm; its result has a row for each wanted logit row."""
    program = Program()
    x = program.buffer(config.hidden_size)
    program.add(Embed(weights.embedding, x))
    writer = _LayerWriter(config, program)
    for index, layer in enumerate(weights.layers):
        attended = writer.attention(x, layer, index)
        if index == config.num_layers - 1:
            # no later attention reads the other rows
            x, attended = writer.pick(x), writer.pick(attended)
        program.add(Linear(attended, layer.o, x, accumulate=True))
        writer.feed_forward(x, layer)
    result = program.buffer(config.hidden_size)
    program.add(RmsNorm(x, weights.final_norm, config.rms_norm_eps, result))
    return program


class _LayerWriter:
    """Layer after layer through the same buffers."""

    def __init__(self, config: ModelConfig, program: Program) -> None:
        self._config = config
        self._program = program
        self._heads = Heads(config.num_heads, config.num_kv_heads, config.head_dim)
        self._normed = program.buffer(config.hidden_size)
        self._qkv = program.buffer(config.q_size + 2 * config.kv_size)
        self._attended = program.buffer(config.q_size)
        self._gate_up = program.buffer(2 * config.intermediate_size)
        self._inner = program.buffer(config.intermediate_size)

    def attention(self, x: Buffer, layer: LayerWeights, index: int) -> Buffer:
        """attention(norm(x))"""
        config, add, qkv = self._config, self._program.add, self._qkv
        add(RmsNorm(x, layer.attention_norm, config.rms_norm_eps, self._normed))
        add(Linear(self._normed, layer.qkv, qkv))
        add(
            RopeAndStore(
                qkv=qkv,
                layer=index,
                heads=self._heads,
                rotates=config.rope_layers[index],
                q_norm=layer.q_norm,
                k_norm=layer.k_norm,
                eps=config.rms_norm_eps,
            )
        )
        add(
            PagedAttention(
                qkv=qkv,
                layer=index,
                heads=self._heads,
                scale=config.attention_scale,
                window=config.windows[index],
                out=self._attended,
            )
        )
        return self._attended

    def feed_forward(self, x: Buffer, layer: LayerWeights) -> None:
        """x += down(silu(gate(norm(x))) * up(norm(x)))"""
        add = self._program.add
        add(RmsNorm(x, layer.mlp_norm, self._config.rms_norm_eps, self._normed))
        add(Linear(self._normed, layer.gate_up, self._gate_up))
        add(SiluMul(self._gate_up, self._inner))
        add(Linear(self._inner, layer.down, x, accumulate=True))

    def pick(self, x: Buffer) -> Buffer:
        picked = self._program.buffer(x.columns)
        self._program.add(PickLogitRows(x, picked))
        return picked
