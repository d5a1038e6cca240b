"""From a command line to one simulated run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from headway.cli.own_flags import split_repeated
from headway.cli.parsing import parse_flags
from headway.cli.simulated_machine import STEP_TIME_FLAGS, Machine, machine_of, refuse_unread
from headway.cli.simulated_workload import FILE_FLAGS, WORKLOAD_FLAGS, workload_of
from headway.core.config import SchedulerConfig
from headway.flags import FlagError
from headway.simulator.config import (
    SCHEDULER_SETTINGS,
    Setup,
    changed_config,
    pool_bytes_left,
    usual_sizes,
)
from headway.simulator.workload.describe import notes_of

OWN_FLAGS = (*STEP_TIME_FLAGS, *WORKLOAD_FLAGS, *FILE_FLAGS)
SETTINGS = SCHEDULER_SETTINGS | {"kv_cache_memory_bytes", "num_gpu_blocks_override"}
_FIELD_NAMES = {"num_requests": "requests", "num_blocks": "num_gpu_blocks_override"}


def setup_of(argv: Sequence[str], seed_offset: int = 0) -> Setup:
    """The run that a line asks for; `seed_offset` is added to its seed.

    Raises FlagError, with one sentence, for what cannot be simulated.
    """
    values, rest = split_repeated(argv, OWN_FLAGS)
    own = {name: given[-1] for name, given in values.items()}
    settings = engine_settings(rest, own)
    try:
        machine = machine_of(own)
        refuse_unread(own, settings)
        config = config_of(settings, machine)
        num_blocks, pool = pool_of(settings, config, machine)
        workload, spec = workload_of(own, seed_offset)
    except FlagError:
        raise
    except ValueError as error:
        raise FlagError(in_flags(str(error))) from None
    facts = {**machine.facts, "pool": pool, "workload": spec, "notes": notes_of(workload)}
    return Setup(
        config=config, num_blocks=num_blocks, model=machine.model, workload=workload, facts=facts
    )


def engine_settings(argv: Sequence[str], own: dict[str, str]) -> dict[str, Any]:
    """The engine's flags, all of which a simulation must obey. Puts a MODEL into `own`."""
    flags = parse_flags(argv)
    for field in flags.server:
        raise FlagError(f"{flags.names[field]} is for headway serve: leave it out")
    settings = dict(flags.engine)
    model = settings.pop("model", None)
    if model is not None and own.setdefault("--model-shape", model) != model:
        raise FlagError(f"there is a --model-shape already, so what is {model!r}?")
    for field in settings:
        if field not in SETTINGS:
            raise FlagError(f"{flags.names[field]} changes nothing in a simulation: leave it out")
    return {name: value for name, value in settings.items() if value is not None}


def in_flags(message: str) -> str:
    """Speak of fields as the flags that set them."""
    head, rest = re.match(r"(\w*)(.*)", message, re.DOTALL).groups()  # type: ignore[union-attr]
    return _as_flag(head) + re.sub(r"\w+_\w+", lambda match: _as_flag(match[0]), rest)


def _as_flag(word: str) -> str:
    name = _FIELD_NAMES.get(word, word)
    return f"--{name.replace('_', '-')}" if name in _FIELDS else word


_FIELDS = {
    *WORKLOAD_FLAGS.values(),
    *SETTINGS,
    *(name[2:].replace("-", "_") for name in STEP_TIME_FLAGS),
}


def config_of(settings: Mapping[str, Any], machine: Machine) -> SchedulerConfig:
    config = SchedulerConfig()
    num_seqs, budget = usual_sizes(machine.hardware)
    num_seqs = settings.get("max_num_seqs", num_seqs)
    usual = {"max_num_seqs": num_seqs, "max_num_batched_tokens": max(budget, num_seqs)}
    if not settings.get("enable_chunked_prefill", True):
        longest = settings.get("max_model_len", config.max_model_len)
        usual["max_num_batched_tokens"] = max(usual["max_num_batched_tokens"], longest)
    asked = {name: value for name, value in settings.items() if name in SCHEDULER_SETTINGS}
    return changed_config(config, {**usual, **asked})


def pool_of(
    settings: Mapping[str, Any], config: SchedulerConfig, machine: Machine
) -> tuple[int, str]:
    """Blocks, and why so many."""
    num_blocks = settings.get("num_gpu_blocks_override")
    if num_blocks is not None:
        return _at_least_one_block(num_blocks, "--num-gpu-blocks-override"), "as asked"
    shape, pool_bytes = machine.shape, settings.get("kv_cache_memory_bytes")
    if shape is None:
        raise FlagError(
            "how large is the KV cache? Give --num-gpu-blocks-override, or --model-shape with "
            "--kv-cache-memory-bytes"
        )
    if pool_bytes is None:
        if machine.hardware is None:
            raise FlagError("--kv-cache-memory-bytes is needed, or --num-gpu-blocks-override")
        pool_bytes = pool_bytes_left(
            shape,
            machine.hardware,
            utilization=machine.utilization,
            weight_dtype=machine.weight_dtype,
            tensor_parallel=machine.tensor_parallel,
        )
    num_blocks = shape.blocks_in(
        pool_bytes,
        block_size=config.block_size,
        dtype=machine.kv_dtype,
        tensor_parallel=machine.tensor_parallel,
    )
    why = f"{pool_bytes / 2**30:.2f} GiB of each device"
    return _at_least_one_block(num_blocks, f"{pool_bytes} bytes of KV cache"), why


def _at_least_one_block(num_blocks: int, what: str) -> int:
    if num_blocks < 1:
        raise FlagError(f"{what}: that is no block at all, at least 1 is needed")
    return num_blocks
