"""Models as sizes: what a step must read and multiply."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headway.simulator.step_time.hardware import DTYPE_BITS


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A decoder of Llama's kind: attention with grouped heads, a gated MLP or experts of them.

    `intermediate_size` is that of the MLP, or of one expert where there are `num_experts`; a token
    goes through `experts_per_token` of those and through a shared one of `shared_size` (0: none).
    `max_positions`: tokens of the longest text that it was made for; 0 where nobody says.
    """

    name: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    tie_word_embeddings: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    num_experts: int = 0
    experts_per_token: int = 0
    shared_size: int = 0
    max_positions: int = 0

    def __post_init__(self) -> None:
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"{self.name}: {self.num_heads} attention heads cannot share "
                f"{self.num_kv_heads} key-value heads evenly"
            )
        if not 0 <= self.experts_per_token <= self.num_experts or (
            self.num_experts and not self.experts_per_token
        ):
            raise ValueError(
                f"{self.name}: a token cannot go through {self.experts_per_token} "
                f"of {self.num_experts} experts"
            )

    @property
    def num_parameters(self) -> int:
        """All of them, as model cards count."""
        tables = 1 if self.tie_word_embeddings else 2
        return self._num_layer_parameters + self.hidden_size + tables * self.num_head_parameters

    @property
    def num_head_parameters(self) -> int:
        """Of the output projection, which only rows that get a token go through."""
        return self.vocab_size * self.hidden_size

    @property
    def num_dense_parameters(self) -> int:
        """Read in every step: all but the experts and a table that embeds only."""
        return (
            self._num_layer_parameters
            - self.num_expert_parameters
            + self.hidden_size
            + self.num_head_parameters
        )

    @property
    def num_expert_parameters(self) -> int:
        """Of all experts of all layers, the shared ones left out."""
        return self.num_layers * self.num_experts * 3 * self.hidden_size * self.intermediate_size

    @property
    def flops_per_token(self) -> float:
        """Of the products of all layers; a multiply-add is two."""
        active = self.experts_per_token if self.num_experts else 1
        mlp = 3 * self.hidden_size * (active * self.intermediate_size + self.shared_size)
        return 2.0 * self.num_layers * (self._num_attention_parameters + mlp + self._router)

    @property
    def flops_per_sample(self) -> float:
        """Of the output projection."""
        return 2.0 * self.num_head_parameters

    @property
    def attention_flops_per_pair(self) -> float:
        """For each token and each token that it attends: scores, then sums of values."""
        return 4.0 * self.num_layers * self.num_heads * self.head_dim

    def kv_factors(self, dtype: str = "bf16") -> dict[str, float]:
        """The factors of `kv_bytes_per_token`, by name, for people who redo the product.

        An int8 head has a float32 scale, as Headway stores it; fp8, of GPUs, has one for all.
        """
        head = {"head dim": self.head_dim}
        if dtype == "int8":
            head = {"head dim and scale": self.head_dim + 4}
        return {
            "keys and values": 2,
            "layers": self.num_layers,
            "kv heads": self.num_kv_heads,
            **head,
            "bytes": bytes_of(dtype),
        }

    def kv_bytes_per_token(self, dtype: str = "bf16") -> int:
        return int(math.prod(self.kv_factors(dtype).values()))

    def weight_bytes(self, dtype: str = "bf16") -> int:
        return int(self.num_parameters * bytes_of(dtype))

    def blocks_in(
        self,
        pool_bytes: int,
        *,
        block_size: int = 16,
        dtype: str = "bf16",
        tensor_parallel: int = 1,
    ) -> int:
        """Whole blocks of `block_size` tokens in a pool of so many bytes on each device."""
        per_token = self.kv_bytes_per_token(dtype) // self.kv_share(tensor_parallel)
        return max(0, pool_bytes) // (block_size * per_token)

    def kv_share(self, tensor_parallel: int) -> int:
        """Devices that divide keys and values; any beyond the heads hold copies. ValueError."""
        if tensor_parallel < 1 or self.num_heads % tensor_parallel:
            raise ValueError(
                f"{self.name}: {self.num_heads} attention heads cannot be divided among "
                f"{tensor_parallel} devices"
            )
        return min(tensor_parallel, self.num_kv_heads)

    @property
    def _num_attention_parameters(self) -> int:
        q_size = self.num_heads * self.head_dim
        kv_size = self.num_kv_heads * self.head_dim
        return self.hidden_size * (2 * q_size + 2 * kv_size)

    @property
    def _router(self) -> int:
        return self.hidden_size * self.num_experts

    @property
    def _num_layer_parameters(self) -> int:
        bias = (self.num_heads + 2 * self.num_kv_heads) * self.head_dim if self.qkv_bias else 0
        norms = 2 * self.hidden_size + (2 * self.head_dim if self.qk_norm else 0)
        mlps = max(1, self.num_experts) * self.intermediate_size + self.shared_size
        mlp = 3 * self.hidden_size * mlps + self._router
        return self.num_layers * (self._num_attention_parameters + mlp + bias + norms)


def bytes_of(dtype: str) -> float:
    """Bytes of one number. Raises ValueError for a name that is not in DTYPE_BITS."""
    if dtype not in DTYPE_BITS:
        raise ValueError(f"there is no dtype {dtype!r}: choose {', '.join(DTYPE_BITS)}")
    return DTYPE_BITS[dtype] / 8
