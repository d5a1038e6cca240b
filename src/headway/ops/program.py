"""The operations of a forward pass as a list: written once for a model, run for any batch.

A backend may take the whole list and run it without coming back between operations. One that does
not runs them one by one (`ops/stepwise.py`). Both give the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from headway.ops.interface import F32, KVCache, PackedLinear, Raw, TokenBatch


@dataclass(frozen=True, slots=True)
class Buffer:
    """Scratch memory of a pass: float32 [rows, columns], a row for each token that is computed."""

    index: int
    columns: int


@dataclass(frozen=True, slots=True)
class Heads:
    """Sizes of attention: a `qkv` buffer has (heads + 2 kv_heads) * head_dim columns."""

    num_heads: int
    num_kv_heads: int
    head_dim: int


@dataclass(frozen=True, slots=True)
class Embed:
    table: Raw
    out: Buffer


@dataclass(frozen=True, slots=True)
class RmsNorm:
    x: Buffer
    weight: F32
    eps: float
    out: Buffer


@dataclass(frozen=True, slots=True)
class Linear:
    x: Buffer
    weight: PackedLinear
    out: Buffer
    accumulate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeAndStore:
    """`rotates` False: positions turn nothing in this layer."""

    qkv: Buffer
    layer: int
    heads: Heads
    rotates: bool = True
    q_norm: F32 | None = None
    k_norm: F32 | None = None
    eps: float = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class PagedAttention:
    qkv: Buffer
    layer: int
    heads: Heads
    scale: float
    window: int
    out: Buffer


@dataclass(frozen=True, slots=True)
class SiluMul:
    gate_up: Buffer
    out: Buffer


@dataclass(frozen=True, slots=True)
class PickLogitRows:
    """out = the rows of x whose logits are wanted; what follows computes those rows alone."""

    x: Buffer
    out: Buffer


Operation = Embed | RmsNorm | Linear | RopeAndStore | PagedAttention | SiluMul | PickLogitRows


@dataclass(slots=True)
class Program:
    """Operations in order. The last one writes the result, [logit rows, columns]."""

    operations: list[Operation] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)

    def buffer(self, columns: int) -> Buffer:
        made = Buffer(len(self.buffers), columns)
        self.buffers.append(made)
        return made

    def add(self, operation: Operation) -> None:
        self.operations.append(operation)

    @property
    def result(self) -> Buffer:
        last = self.operations[-1]
        assert not isinstance(last, RopeAndStore)
        return last.out


@dataclass(frozen=True, slots=True)
class Rotation:
    """cos and sin by position, float32 [positions, rotary_dim / 2].

    `identity` turns nothing; it is read where `rotates` is False.
    """

    cos: F32
    sin: F32
    identity_cos: F32
    identity_sin: F32


class ForwardPass(Protocol):
    """A program made ready by a backend. One thread at a time: scratch memory is reused."""

    def run(self, batch: TokenBatch, cache: KVCache, rotation: Rotation, out: F32) -> None:
        """`out` float32 [logit rows, columns of the result]. Raises ValueError as the operations
        do, before anything is computed or stored, where the backend takes the list as a whole.
        """
        ...
