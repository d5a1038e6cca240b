"""Where a device's memory goes, and how many tokens the rest holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headway.simulator.step_time.model_shape import ModelShape

# Of an accelerator: its driver's context, captured graphs, workspaces of libraries. An assumption.
ACCELERATOR_BYTES = 1 << 30
_ACTIVATION_BYTES = 2  # of one number between two products
_LOGIT_BYTES = 6  # as the model makes them, and once more in float32 for sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class KvCache:
    """A pool of blocks on each device. `bytes_per_token` is of all devices that share the model.

    `share`: by how many devices keys and values are divided.
    """

    factors: Mapping[str, float]
    bytes_per_token: int
    share: int
    block_size: int
    pool_bytes: int
    num_blocks: int

    @property
    def num_tokens(self) -> int:
        return self.num_blocks * self.block_size

    @property
    def block_bytes(self) -> int:
        """Of one device."""
        return self.block_size * (self.bytes_per_token // self.share)

    def blocks_for(self, num_tokens: int) -> int:
        return -(-num_tokens // self.block_size)

    def worst_case(self, max_model_len: int) -> float:
        """How many sequences of this length the pool holds, as an engine's first lines say."""
        return self.num_tokens / max_model_len


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """Of one device, in bytes. `usable`: what the engine may take; None where the pool was given.

    `activations`: between two products at the token budget, and logits of every slot at once, as
    engines try at their start: of `num_samples`. `fixed`: whatever else stands beside the model.
    """

    usable: int | None
    weights: int
    activations: int
    num_samples: int
    fixed: int

    @property
    def left(self) -> int:
        """For the KV cache. Raises ValueError if nothing is, with the numbers."""
        assert self.usable is not None
        left = self.usable - self.weights - self.activations - self.fixed
        if left <= 0:
            parts = (self.usable, self.weights, self.activations + self.fixed)
            usable, weights, rest = (f"{part / 2**30:.2f} GiB" for part in parts)
            raise ValueError(
                f"nothing is left for a KV cache: of the {usable} that may be used on each device "
                f"weights take {weights}, activations and the like {rest}: use more devices, "
                f"fewer bits, or lower --max-num-seqs and --max-num-batched-tokens"
            )
        return left


def activation_bytes(
    shape: ModelShape, *, num_tokens: int, num_samples: int, tensor_parallel: int = 1
) -> int:
    """At the widest place of a forward pass of so many tokens, and of as many logits as samples."""
    mlp = shape.intermediate_size * max(1, shape.experts_per_token) + shape.shared_size
    attention = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_dim
    widest = max(2 * mlp, attention) // tensor_parallel
    between = num_tokens * (2 * shape.hidden_size + widest) * _ACTIVATION_BYTES
    return between + num_samples * shape.vocab_size * _LOGIT_BYTES


def kv_cache(
    shape: ModelShape,
    *,
    dtype: str,
    block_size: int,
    tensor_parallel: int = 1,
    pool_bytes: int | None = None,
    num_blocks: int | None = None,
) -> KvCache:
    """Of `pool_bytes` on each device, or of `num_blocks`. Raises ValueError for no block."""
    share = shape.kv_share(tensor_parallel)
    per_token = shape.kv_bytes_per_token(dtype)
    block_bytes = block_size * (per_token // share)
    if num_blocks is None:
        assert pool_bytes is not None
        num_blocks = shape.blocks_in(
            pool_bytes, block_size=block_size, dtype=dtype, tensor_parallel=tensor_parallel
        )
    if num_blocks < 1:
        raise ValueError(
            f"{pool_bytes or 0:,} bytes of KV cache hold no block of {block_size} tokens, which "
            f"takes {block_bytes:,}: raise --kv-cache-memory-bytes"
        )
    return KvCache(
        factors=shape.kv_factors(dtype),
        bytes_per_token=per_token,
        share=share,
        block_size=block_size,
        pool_bytes=num_blocks * block_bytes if pool_bytes is None else pool_bytes,
        num_blocks=num_blocks,
    )
