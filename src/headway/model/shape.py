"""ModelConfig: the numbers a decoder is built from, whatever file they came from."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.model.errors import ModelError

DTYPE_BYTES = {"float32": 4, "bfloat16": 2}
_KV_BYTES = {**DTYPE_BYTES, "int8": 1}
_SCALE_BYTES = 4  # a float32 with each int8 key and value of a head
_KEYS_AND_VALUES = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """Rotary position embedding. `kind` is none, linear, llama3 or yarn.

    `rotary_dim` leading dimensions of a head turn (all, unless the model is partial).
    `attention_factor` multiplies cos and sin (yarn); the rest is read by its kind only.
    """

    theta: float
    rotary_dim: int
    kind: str = "none"
    factor: float = 1.0
    original_max_position_embeddings: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A decoder's sizes and options, checked. Raises ModelError on impossible ones.

    `windows` has one entry per layer: how many positions it sees, 0 for all. `rope_layers` says
    which layers rotate. `dtype` is what the file stores, for people to read. The multipliers are
    Granite's: of the embeddings, of what each branch adds to the residual, and a divisor of the
    logits. `generation` holds the model's own sampling defaults by their SamplingParams names.
    """

    architecture: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope: RopeConfig
    attention_scale: float
    tie_word_embeddings: bool = False
    qkv_bias: bool = False
    o_bias: bool = False
    mlp_bias: bool = False
    qk_norm: bool = False
    windows: tuple[int, ...]
    rope_layers: tuple[bool, ...]
    embedding_multiplier: float = 1.0
    residual_multiplier: float = 1.0
    logits_divisor: float = 1.0
    eos_token_ids: tuple[int, ...] = ()
    bos_token_id: int | None = None
    dtype: str = "float32"
    generation: Mapping[str, float] = field(default_factory=lambda: types.MappingProxyType({}))

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ModelError(
                f"{self.num_heads} attention heads cannot share {self.num_kv_heads} key-value "
                f"heads evenly: the model's configuration is broken"
            )
        if self.head_dim % 2 or self.rope.rotary_dim % 2 or self.rope.rotary_dim > self.head_dim:
            raise ModelError(
                f"head_dim {self.head_dim} and the {self.rope.rotary_dim} rotary dimensions in it "
                f"must be even: the model's configuration is broken"
            )
        if not len(self.windows) == len(self.rope_layers) == self.num_layers:
            raise ModelError(f"per-layer options do not match the {self.num_layers} layers")

    @property
    def q_size(self) -> int:
        return self.num_heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.num_kv_heads * self.head_dim

    def kv_factors(self, dtype: str) -> dict[str, int]:
        """The factors of `kv_bytes_per_token`, by name, for people who redo the product."""
        if dtype not in _KV_BYTES:
            raise ModelError(f"a KV cache holds {' or '.join(_KV_BYTES)}, not {dtype!r}")
        head = {"head_dim": self.head_dim}
        if dtype == "int8":
            head = {"head_dim_and_scale": self.head_dim + _SCALE_BYTES}
        return {
            "layers": self.num_layers,
            "kv_heads": self.num_kv_heads,
            **head,
            "keys_and_values": _KEYS_AND_VALUES,
            "bytes": _KV_BYTES[dtype],
        }

    def kv_bytes_per_token(self, dtype: str) -> int:
        product = 1
        for factor in self.kv_factors(dtype).values():
            product *= factor
        return product


def plan_blocks(config: ModelConfig, block_size: int, dtype: str, memory_bytes: int) -> int:
    """How many whole blocks of `block_size` tokens fit in `memory_bytes`; 0 when none does."""
    return max(0, memory_bytes) // (block_size * config.kv_bytes_per_token(dtype))
