"""The memory of a machine, and what the scheduler is told, in a plan."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headway.cli.simulated_machine import Machine
from headway.core.config import SchedulerConfig
from headway.flags import FlagError
from headway.insight.plan.memory import (
    ACCELERATOR_BYTES,
    KvCache,
    Memory,
    activation_bytes,
    kv_cache,
)
from headway.insight.plan.residents import Limits
from headway.simulator.config import usual_sizes

if TYPE_CHECKING:
    from headway.simulator.step_time.model_shape import ModelShape

_DEFAULT_MODEL_LEN = 8192


def limits_of(settings: Mapping[str, Any], machine: Machine, shape: ModelShape) -> Limits:
    """The number of blocks is not known yet."""
    num_seqs = settings.get("max_num_seqs")
    usual_seqs, budget = usual_sizes(machine.hardware)
    longest = settings.get("max_model_len", shape.max_positions or _DEFAULT_MODEL_LEN)
    if shape.max_positions and longest > shape.max_positions:
        raise FlagError(
            f"--max-model-len {longest:,} is more than the {shape.max_positions:,} tokens that "
            f"{shape.name} was made for: lower it"
        )
    asked = {name: settings[name] for name in ("max_num_seqs", "kv_risk") if name in settings}
    if settings.get("kv_policy") == "predict":
        asked["kv_policy"] = "predict"
    config = SchedulerConfig(
        **{
            "max_model_len": longest,
            "block_size": settings.get("block_size", 16),
            "max_num_batched_tokens": settings.get(
                "max_num_batched_tokens", max(budget, num_seqs or 0)
            ),
            "max_num_seqs": min(usual_seqs, settings.get("max_num_batched_tokens", budget)),
            **asked,
        }
    )
    return Limits(
        num_blocks=1,
        block_size=config.block_size,
        max_num_batched_tokens=config.max_num_batched_tokens,
        max_model_len=config.max_model_len,
        max_num_seqs=num_seqs,
        kv_risk=config.kv_risk,
    )


def memory_of(
    settings: Mapping[str, Any], machine: Machine, shape: ModelShape, limits: Limits
) -> tuple[Memory, KvCache]:
    num_blocks = settings.get("num_gpu_blocks_override")
    pool = settings.get("kv_cache_memory_bytes")
    memory = _device_memory(machine, shape, limits)
    if num_blocks is None and pool is None:
        pool = memory.left if is_accelerator(machine) else _cpu_pool(machine, shape, limits)
    else:
        memory = replace(memory, usable=None)
    cache = kv_cache(
        shape,
        dtype=machine.kv_dtype,
        block_size=limits.block_size,
        tensor_parallel=machine.tensor_parallel,
        pool_bytes=pool,
        num_blocks=num_blocks,
    )
    if memory.usable is None:
        _refuse_too_large(cache, memory, machine)
    return memory, cache


def _refuse_too_large(cache: KvCache, memory: Memory, machine: Machine) -> None:
    """Raises FlagError for a pool, as asked, that the device cannot have."""
    if machine.hardware is None:
        return
    fixed = ACCELERATOR_BYTES if is_accelerator(machine) else 0
    pool, rest = cache.pool_bytes, memory.weights + memory.activations + fixed
    there = machine.hardware.memory_bytes
    if pool + rest > there:
        raise FlagError(
            f"a KV cache of {pool / 2**30:,.1f} GiB does not fit: {machine.hardware.name} has "
            f"{there / 2**30:,.1f} GiB, of which weights, activations and the like take "
            f"{rest / 2**30:,.1f}: lower --kv-cache-memory-bytes or --num-gpu-blocks-override"
        )


def is_accelerator(machine: Machine) -> bool:
    return machine.hardware is not None and not machine.hardware.name.startswith("cpu")


def _device_memory(machine: Machine, shape: ModelShape, limits: Limits) -> Memory:
    num_samples = limits.max_num_seqs or usual_sizes(machine.hardware)[0]
    usable = None
    if is_accelerator(machine):
        assert machine.hardware is not None
        usable = int(machine.hardware.memory_bytes * machine.utilization)
    return Memory(
        usable=usable,
        weights=shape.weight_bytes(machine.weight_dtype) // machine.tensor_parallel,
        activations=activation_bytes(
            shape,
            num_tokens=limits.max_num_batched_tokens,
            num_samples=num_samples,
            tensor_parallel=machine.tensor_parallel,
        ),
        num_samples=num_samples,
        fixed=ACCELERATOR_BYTES if usable is not None else 0,
    )


def _cpu_pool(machine: Machine, shape: ModelShape, limits: Limits) -> int:
    """As `headway serve` chooses it, of what is free beside the weights."""
    from headway.engine.sizing import available_memory_bytes, usual_pool_bytes

    if machine.hardware is not None:
        free = machine.hardware.memory_bytes
    else:
        free = available_memory_bytes()
    weights = shape.weight_bytes(machine.weight_dtype)
    free -= weights
    if free <= 0:
        raise FlagError(
            f"the weights of {shape.name} take {weights / 2**30:.1f} GiB, more than there is "
            f"memory: use fewer bits (--quantization), or another machine"
        )
    return usual_pool_bytes(
        limits.max_model_len,
        limits.max_num_seqs,
        block_size=limits.block_size,
        kv_bytes_per_token=shape.kv_bytes_per_token(machine.kv_dtype),
        free_bytes=free,
    )
