"""The operations a decoder is written against, and the promise they keep.

Arrays are C-contiguous numpy arrays. Activations are float32 everywhere; a kernel rounds what it
multiplies to the dtype of the weights or of the KV cache. bfloat16 data lies in uint16 arrays.

**Row invariance.** Row i of a result depends, bit for bit, on row i of the input (and, for
attention, on the keys and values at positions up to its own) and on nothing else: not on the number
of rows, the other rows, the chunking, the place in the batch or the number of threads.

Every operation checks its arguments and raises ValueError or TypeError with a sentence; none
crashes. NaN counts as -inf where a largest value is sought.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from headway.ops.program import ForwardPass, Program

F32 = npt.NDArray[np.float32]
I32 = npt.NDArray[np.int32]
I64 = npt.NDArray[np.int64]
U64 = npt.NDArray[np.uint64]
Raw = npt.NDArray[Any]  # float32, or uint16 holding bfloat16
Weight = Raw | tuple[Raw, ...]  # a matrix, or several to stack, of one dtype

KV_TILE = 16  # attention walks keys in tiles [16 i, 16 i + 16) of absolute positions


@dataclass(frozen=True, slots=True)
class GroupedWeight:
    """A weight [N, K] in few bits, each group along K with a scale of its own (ops/grouped.py).

    weight = factor * scale * (number - zero), or factor * (scale * number + minimum) where the
    format has minimums. Scales and minimums are finite.
    """

    format: str
    numbers: npt.NDArray[np.uint8]  # [N, K]
    scales: npt.NDArray[np.float16]  # [N, groups]
    minimums: npt.NDArray[np.float16] | None  # [N, groups]
    factors: F32  # [N]


@dataclass(frozen=True, slots=True)
class PackedLinear:
    """A weight matrix [out_features, in_features] in a backend's own layout, with its bias."""

    data: Raw
    bias: F32 | None
    out_features: int
    in_features: int
    dtype: str  # "float32", "bfloat16", "int8", "int4" or a format in ops/grouped.py
    layout: str  # format tag: a kernel refuses another's layout
    scales: F32 | None = None  # [out_features], what the rows of whole numbers are multiplied by
    grouped: GroupedWeight | None = None  # of a backend that reads it as it is


@dataclass(frozen=True, slots=True)
class KVCache:
    """Keys and values of all layers behind block ids.

    Layout, the same for every backend: `num_tiles = num_blocks * block_size / 16` tiles of 16
    tokens. bfloat16 keys are in pairs along head_dim, values in pairs along tokens:
    bfloat16: keys   uint16  [layers, num_tiles, kv_heads, head_dim / 2, 16, 2]
              values uint16  [layers, num_tiles, kv_heads, 8, head_dim, 2]
    float32:  keys   float32 [layers, num_tiles, kv_heads, head_dim, 16]
              values float32 [layers, num_tiles, kv_heads, 16, head_dim]
    int8:     keys   uint8   [layers, num_tiles, kv_heads, head_dim / 4 + 2, 16, 4]
              values uint8   [layers, num_tiles, kv_heads, 4, head_dim, 4]
    int8 has a scale per token and head: byte b stands for (b - 128) * scale. Keys are in fours
    along head_dim, values in fours along tokens. Behind a tile's keys lie the bytes of two rows of
    16 float32: the scales of its keys, and those of its values.
    Token `kv_row` lies in tile kv_row // 16 at place kv_row % 16;
    kv_row = block_id * block_size + position % block_size.
    """

    keys: Raw
    values: Raw
    block_size: int
    num_blocks: int
    dtype: str

    @property
    def num_layers(self) -> int:
        return int(self.keys.shape[0])

    @property
    def num_kv_heads(self) -> int:
        return int(self.keys.shape[2])

    @property
    def head_dim(self) -> int:
        return int(self.values.shape[4])


@dataclass(frozen=True, slots=True)
class TokenBatch:
    """The flat arrays of one step. T tokens of S chunks; the tokens of a chunk are consecutive."""

    token_ids: I32  # [T]
    positions: I32  # [T] absolute position in the sequence
    kv_rows: I64  # [T] where each token's key and value go
    chunk_starts: I32  # [S + 1] first row of each chunk; the last entry is T
    block_tables: I32  # [S, max_blocks] block ids in order of position, padded with -1
    logit_rows: I32  # [R] rows whose logits are wanted


class Ops(Protocol):
    """A backend. `name` says which and on what instruction set, e.g. "cpu/avx512_bf16"."""

    name: str

    @property
    def num_threads(self) -> int:
        """Threads that an operation is spread over."""
        ...

    def new_kv_cache(
        self,
        num_layers: int,
        num_blocks: int,
        block_size: int,
        num_kv_heads: int,
        head_dim: int,
        dtype: str,
    ) -> KVCache:
        """An empty cache of `dtype` "float32", "bfloat16" or "int8"; `block_size` a multiple of 16.

        Memory is taken from the system page by page, when it is first written.
        """
        ...

    def compile(self, program: Program) -> ForwardPass:
        """Make a list of operations ready to run, once, for any batch."""
        ...

    def pack_linear(
        self,
        weight: Weight,
        bias: F32 | None,
        dtype: str,
        *,
        on_packed: Callable[[Raw], None] | None = None,
    ) -> PackedLinear:
        """Pack `weight` [N, K] (float32, or uint16 as bfloat16) for `linear`, stored as `dtype`.

        "int8" scales each row so that its largest magnitude is 127 and rounds to whole numbers.
        "int4" gives 32 neighbours of a row a scale and a minimum for numbers of 4 bits, and means
        int8 by them.
        `on_packed` hears of each part of `weight` that will not be read again.
        """
        ...

    def as_table(self, weight: PackedLinear) -> Raw | None:
        """The rows of `weight` as a table for `embed`, sharing its memory; None where it cannot.

        A model whose input and output are one matrix then holds it once.
        """
        ...

    def pack_grouped(self, weight: GroupedWeight, bias: F32 | None) -> PackedLinear:
        """Pack what is quantised already, number by number, for `linear`."""
        ...

    def linear(self, x: F32, weight: PackedLinear, out: F32, *, accumulate: bool = False) -> None:
        """out[M, N] = x[M, K] @ weight.T + bias; with `accumulate`, out += that. No aliasing.

        A weight of 8 bits or fewer sees x as int8, each 64 elements of a row scaled by their
        largest.
        """
        ...

    def embed(self, table: Raw, token_ids: I32, out: F32) -> None:
        """out[i] = table[token_ids[i]]; table [V, D] float32 or bfloat16. Ids outside it raise.

        What `as_table` gave is a table, too.
        """
        ...

    def rms_norm(self, x: F32, weight: F32, eps: float, out: F32) -> None:
        """out = x / sqrt(mean(x^2) + eps) * weight over the last axis, [M, D]. May alias."""
        ...

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
        """Rotate q and k by position, store k and v in the cache; q stays, rotated, in `qkv`.

        qkv [T, (num_heads + 2 kv_heads) * head_dim]: q heads, then k heads, then v heads.
        cos, sin [max_positions, rotary_dim / 2], rotary_dim <= head_dim; `interleaved` pairs
        (2i, 2i+1) instead of (i, i + rotary_dim/2). q_norm, k_norm [head_dim]: RMS norm of each
        head before the rotation. Positions outside the tables and rows outside the cache raise.
        """
        ...

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
        """Causal attention of each token over its own sequence's cached keys and values.

        A token at position p sees positions max(0, p - window + 1) ... p (window 0: 0 ... p).
        `qkv` as `rope_and_store` left it; out [T, num_heads * head_dim]. The KV cache must hold the
        keys and values of this step's tokens already. Positions in a chunk rise by one.
        """
        ...

    def silu_mul(self, gate_up: F32, out: F32) -> None:
        """out[M, F] = silu(gate_up[:, :F]) * gate_up[:, F:]; gate_up [M, 2F]."""
        ...

    def argmax(self, logits: F32, out: I32) -> None:
        """Index of the largest value of each row of [R, V]; the lowest index on a tie."""
        ...

    def log_softmax(self, logits: F32, out: F32) -> None:
        """log_softmax of each row of [R, V]. -inf entries stay -inf. May alias."""
        ...

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
        """Draw one token id per row of [R, V].

        Per row: scale by 1/temperature, softmax, keep the top_k most likely (0: all), then the
        smallest set whose share of those reaches top_p, then those of at least min_p times the
        largest; draw by inverse CDF over the kept tokens in order of falling logit (lower id first
        on a tie) with the uniform number that Philox-4x32-10 gives for key=seed, counter=position.
        A row with temperature 0 takes the argmax.
        """
        ...
