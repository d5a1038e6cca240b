"""From a command line to what is to be planned."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from headway.cli.simulated_machine import (
    STEP_TIME_FLAGS,
    Machine,
    machine_of,
    refuse_unread,
)
from headway.cli.simulated_workload import FILE_FLAGS, WORKLOAD_FLAGS, workload_of
from headway.cli.simulation import engine_settings, in_flags
from headway.core.config import SchedulerConfig
from headway.flags import FlagError
from headway.insight.plan.demand import Demand
from headway.insight.plan.memory import (
    ACCELERATOR_BYTES,
    KvCache,
    Memory,
    activation_bytes,
    kv_cache,
)
from headway.insight.plan.planning import Question
from headway.insight.plan.residents import Limits
from headway.simulator.config import usual_sizes
from headway.simulator.workload.arrivals import Renewal
from headway.simulator.workload.describe import describe
from headway.simulator.workload.synthetic import Synthetic

if TYPE_CHECKING:
    from headway.simulator.step_time.model_shape import ModelShape
    from headway.simulator.workload.base import Workload

DEFAULT_MODEL = "SmolLM2-135M-Instruct"
THIS_MACHINE = "this-machine"
_LAWS = ("rate", "arrivals", "requests", "prompt_tokens", "output_tokens", "max_tokens", "seed")
_TURNS = ("turns", "later_prompt_tokens", "prefixes", "prefix_tokens", "prefix_share", "first")
WORKLOAD_FLAGS_READ = (
    *FILE_FLAGS,
    *(flag for flag, field in WORKLOAD_FLAGS.items() if field in (*_LAWS, *_TURNS)),
)
PLANNED_FLAGS = (*STEP_TIME_FLAGS, *WORKLOAD_FLAGS_READ)
SETTINGS = (
    "max_model_len",
    "max_num_seqs",
    "max_num_batched_tokens",
    "block_size",
    "kv_cache_memory_bytes",
    "num_gpu_blocks_override",
    "kv_policy",
    "kv_risk",
    "prefill_placement",
)
_ASSUMED = {
    "prompt_tokens": "lognormal:1000:0.8:32-8192",
    "output_tokens": "lognormal:250:0.8:8-2048",
}
_DEFAULT_MODEL_LEN = 8192
_MOST_REQUESTS = 100_000  # of a file that are read
_DRAWN = 20_000  # where lengths follow from turns and prefixes


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """`question` with what people want to know of where its figures come from."""

    question: Question
    machine: Machine
    shape: ModelShape
    model: str | None
    settings: Mapping[str, Any]
    facts: Mapping[str, Any]
    notes: tuple[str, ...]


def asked_of(argv: Sequence[str], own: dict[str, str]) -> Asked:
    """Raises FlagError or ValueError, with one sentence, for what cannot be planned."""
    price = _positive(own, "--price-per-hour")
    seconds = _positive(own, "--calibration-seconds")
    settings = _settings(argv, own)
    model = own.get("--model-shape")
    own.setdefault("--model-shape", DEFAULT_MODEL)
    is_here = own.get("--hardware", "").lower().replace("_", "-") == THIS_MACHINE
    if seconds is not None and (not is_here or "--step-time" in own):
        raise FlagError(f"--calibration-seconds is for --hardware {THIS_MACHINE} that is measured")
    if "--step-time" not in own and not _names_hardware(own):
        raise FlagError(
            "on what? Give --hardware: h100, l4, mi300x, ..., cpu or this-machine, or a device by "
            "--memory-gib, --bandwidth-gbs and --tflops"
        )
    try:
        if is_here:
            own.pop("--hardware")
            machine = _this_machine(own, model, settings, seconds or 20.0)
        else:
            machine = machine_of(own)
            refuse_unread(own, settings)
        demand, rate, notes = _demand(own)
        return _asked(own, settings, machine, model, demand, rate, price, notes)
    except FlagError:
        raise
    except ValueError as error:
        raise FlagError(in_flags(str(error))) from None


def _names_hardware(own: Mapping[str, str]) -> bool:
    return "--hardware" in own or all(
        flag in own for flag in ("--memory-gib", "--bandwidth-gbs", "--tflops")
    )


def _settings(argv: Sequence[str], own: dict[str, str]) -> dict[str, Any]:
    settings = engine_settings(argv, own)
    for name in settings:
        if name not in SETTINGS:
            flag = f"--{name.replace('_', '-')}"
            raise FlagError(f"{flag} changes nothing in a plan: leave it out")
    return settings


def _positive(own: dict[str, str], flag: str) -> float | None:
    given = own.pop(flag, None)
    if given is None:
        return None
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not 0 < value < 1e9:
        raise FlagError(f"{flag} must be a number above 0, got {given!r}")
    return value


def _this_machine(
    own: dict[str, str], model: str | None, settings: Mapping[str, Any], seconds: float
) -> Machine:
    from headway.cli.plan_machine import measured_machine

    return measured_machine(own, model, settings, seconds)


# ---- Lengths ----


def _demand(own: Mapping[str, str]) -> tuple[Demand, float | None, tuple[str, ...]]:
    """With the rate, where one is given, and what to know of it."""
    given = {flag: own[flag] for flag in WORKLOAD_FLAGS_READ if flag in own}
    is_whole = "--workload" in given or "--trace" in given
    notes: tuple[str, ...] = ()
    if not is_whole:
        for field, law in _ASSUMED.items():
            flag = f"--{field.replace('_', '-')}"
            if flag not in given:
                given[flag] = law
                notes += (f"no {flag} is given: {law} is assumed",)
        if "--rate" not in given and "--arrivals" not in given:
            given["--arrivals"] = "at-once"
        given.setdefault("--requests", str(_DRAWN))
    workload, spec = workload_of(given, 0)
    demand = _demand_of(workload)
    rate = _rate(workload, spec, is_whole=is_whole)
    return demand, rate, (*notes, *_cache_notes(workload))


def _demand_of(workload: Workload) -> Demand:
    if isinstance(workload, Synthetic) and _is_plain(workload):
        assert workload.prompt_tokens is not None
        assert workload.output_tokens is not None
        return Demand.of_laws(workload.prompt_tokens, workload.output_tokens, workload.max_tokens)
    requests = islice(workload.traffic().arrivals(), _MOST_REQUESTS)
    return Demand.of_requests(
        (request.num_prompt_tokens, request.output.num_tokens) for request in requests
    )


def _is_plain(workload: Synthetic) -> bool:
    """Lengths are those of the laws."""
    return workload.conversations is None and workload.prefixes is None and workload.turns is None


def _rate(workload: Workload, spec: Mapping[str, Any], *, is_whole: bool) -> float | None:
    if isinstance(workload, Synthetic) and isinstance(workload.arrivals, Renewal):
        return workload.arrivals.rate
    if "trace" in spec and is_whole:
        return describe(workload, _MOST_REQUESTS).rate
    return None


def _cache_notes(workload: Workload) -> tuple[str, ...]:
    if isinstance(workload, Synthetic) and _is_plain(workload):
        return ()
    return ("what the prefix cache would find is not counted",)


# ---- Memory and limits ----


def _asked(
    own: Mapping[str, str],
    settings: Mapping[str, Any],
    machine: Machine,
    model: str | None,
    demand: Demand,
    rate: float | None,
    price: float | None,
    notes: tuple[str, ...],
) -> Asked:
    shape = machine.shape
    assert shape is not None
    limits = _limits(settings, machine, shape)
    memory, cache = _memory(settings, machine, shape, limits)
    policy = settings.get("kv_policy", "on-demand")
    question = Question(
        cache=cache,
        memory=memory,
        limits=replace(limits, num_blocks=cache.num_blocks),
        demand=demand,
        step_times=machine.model,
        hardware=machine.hardware,
        compute_dtype=_compute_dtype(machine),
        kv_policy=policy,
        is_mixed=settings.get("prefill_placement", "mixed") == "mixed",
        rate=rate,
        price_per_hour=price,
    )
    return Asked(
        question=question,
        machine=machine,
        shape=shape,
        model=model,
        settings=settings,
        facts={**machine.facts, "notes": notes},
        notes=notes,
    )


def _compute_dtype(machine: Machine) -> str:
    hardware = machine.hardware
    if hardware is not None and machine.weight_dtype in hardware.peak_flops:
        return machine.weight_dtype
    return "bf16"


def _limits(settings: Mapping[str, Any], machine: Machine, shape: ModelShape) -> Limits:
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


def _memory(
    settings: Mapping[str, Any], machine: Machine, shape: ModelShape, limits: Limits
) -> tuple[Memory, KvCache]:
    num_blocks = settings.get("num_gpu_blocks_override")
    pool = settings.get("kv_cache_memory_bytes")
    memory = _device_memory(machine, shape, limits)
    if num_blocks is None and pool is None:
        pool = memory.left if _is_accelerator(machine) else _cpu_pool(machine, shape, limits)
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
    return memory, cache


def _is_accelerator(machine: Machine) -> bool:
    return machine.hardware is not None and not machine.hardware.name.startswith("cpu")


def _device_memory(machine: Machine, shape: ModelShape, limits: Limits) -> Memory:
    num_samples = limits.max_num_seqs or usual_sizes(machine.hardware)[0]
    usable = None
    if _is_accelerator(machine):
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
