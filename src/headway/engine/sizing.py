"""Defaults that depend on the machine and the model: chosen here, once, and printed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from headway.engine.config import EngineConfig
from headway.model.config import ModelConfig, plan_blocks

_GIB = 1 << 30
_CGROUP = Path("/sys/fs/cgroup")
_CGROUP_V1 = ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes")
_MAX_POOL_BYTES = 4 * _GIB
_MAX_NUM_SEQS = 256
# A request is expected to hold this many tokens when nothing is known about the traffic.
_EXPECTED_TOKENS = 512
# The CPU's token budget: a step of 512 prompt tokens keeps the stall of a decode short.
_MAX_NUM_BATCHED_TOKENS = 512


@dataclass(frozen=True, slots=True)
class Sizes:
    max_model_len: int
    num_blocks: int
    max_num_seqs: int
    max_num_batched_tokens: int


def choose_sizes(config: EngineConfig, model: ModelConfig, kv_dtype: str) -> Sizes:
    """Raises ValueError where the flags ask for what the model or the memory cannot give."""
    max_model_len = _max_model_len(config, model)
    num_blocks = _num_blocks(config, model, kv_dtype, max_model_len)
    expected_blocks = -(-min(max_model_len, _EXPECTED_TOKENS) // config.block_size)
    fit = max(1, num_blocks // expected_blocks)
    max_num_seqs = config.max_num_seqs or min(_MAX_NUM_SEQS, fit)
    budget = config.max_num_batched_tokens or _budget(config, max_num_seqs, max_model_len)
    return Sizes(max_model_len, num_blocks, max_num_seqs, budget)


def available_memory_bytes() -> int:
    """Memory this process could still get: the kernel's estimate, or what its control group has
    left of its limit."""
    return min([_meminfo_available(), *_left_in_control_group()])


def _left_in_control_group() -> list[int]:
    """Empty where there is no limit. Control groups of version 2, then 1."""
    left = []
    for limit, used in (("memory.max", "memory.current"), _CGROUP_V1):
        try:
            in_bytes = [int((_CGROUP / name).read_text()) for name in (limit, used)]
        except (OSError, ValueError):
            continue  # no such file, or "max"
        left.append(max(0, in_bytes[0] - in_bytes[1]))
    return left


def _meminfo_available() -> int:
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2


def _max_model_len(config: EngineConfig, model: ModelConfig) -> int:
    limit = model.max_position_embeddings
    if config.max_model_len is None:
        return limit
    if config.max_model_len > limit:
        raise ValueError(
            f"max_model_len={config.max_model_len} is longer than the {limit} positions that "
            f"the model was made for: lower --max-model-len"
        )
    return config.max_model_len


def _num_blocks(config: EngineConfig, model: ModelConfig, kv_dtype: str, max_model_len: int) -> int:
    if config.num_gpu_blocks_override is not None:
        return config.num_gpu_blocks_override
    budget = config.kv_cache_memory_bytes
    if budget is None:
        budget = usual_pool_bytes(
            max_model_len,
            config.max_num_seqs,
            block_size=config.block_size,
            kv_bytes_per_token=model.kv_bytes_per_token(kv_dtype),
            free_bytes=available_memory_bytes(),
        )
    num_blocks = plan_blocks(model, config.block_size, kv_dtype, budget)
    if num_blocks < 1:
        per_block = config.block_size * model.kv_bytes_per_token(kv_dtype)
        raise ValueError(
            f"{budget} bytes of KV cache hold no block of {config.block_size} tokens "
            f"({per_block} bytes): raise --kv-cache-memory-bytes"
        )
    return num_blocks


def usual_pool_bytes(
    max_model_len: int,
    max_num_seqs: int | None,
    *,
    block_size: int,
    kv_bytes_per_token: int,
    free_bytes: int,
) -> int:
    """Of the KV cache where nobody says: a quarter of what is free, at most 4 GiB, and no more than
    all sequences could ever fill."""
    longest = -(-max_model_len // block_size) * block_size
    worth = longest * (max_num_seqs or _MAX_NUM_SEQS) * kv_bytes_per_token
    return min(_MAX_POOL_BYTES, free_bytes // 4, worth)


def _budget(config: EngineConfig, max_num_seqs: int, max_model_len: int) -> int:
    budget = max(_MAX_NUM_BATCHED_TOKENS, max_num_seqs)
    return budget if config.enable_chunked_prefill else max(budget, max_model_len)
