"""From a command line to what is to be planned."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headway.cli.plan_lengths import WORKLOAD_FLAGS_READ, demand_of
from headway.cli.plan_memory import limits_of, memory_of
from headway.cli.simulated_machine import (
    STEP_TIME_FLAGS,
    Machine,
    machine_of,
    refuse_unread,
)
from headway.cli.simulation import engine_settings, in_flags
from headway.flags import FlagError
from headway.insight.plan.demand import Demand
from headway.insight.plan.planning import Question
from headway.model.default_model import DEFAULT_NAME

if TYPE_CHECKING:
    from headway.simulator.step_time.model_shape import ModelShape


THIS_MACHINE = "this-machine"
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
    own.setdefault("--model-shape", DEFAULT_NAME)
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
        demand, rate, notes = demand_of(own)
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
    limits = limits_of(settings, machine, shape)
    memory, cache = memory_of(settings, machine, shape, limits)
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
