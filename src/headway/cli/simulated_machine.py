"""The machine and the model that a simulation is about, from flags."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.flags import FlagError
from headway.simulator.step_time.files import read_model
from headway.simulator.step_time.hardware import Hardware, hardware_named
from headway.simulator.step_time.model_shape import ModelShape
from headway.simulator.step_time.models import shape_from_config, shape_named
from headway.simulator.step_time.roofline import roofline

if TYPE_CHECKING:
    from headway.simulator.step_time.base import StepTimeModel

STEP_TIME_FLAGS = {
    "--step-time": ("roofline|FILE", "How long steps take: roofline, or a file of calibrate's."),
    "--hardware": ("NAME", "The device: h100 (unless given), h200, a100, l4, l40s, b200, ..."),
    "--model-shape": ("NAME|FILE", "The model: Llama-3-8B unless given, or a config.json."),
    "--tensor-parallel-size": ("N", "Devices that share the model; their exchange costs nothing."),
    "--dtype": ("TYPE", "Of weights and products: bfloat16 or float32."),
    "--quantization": ("FORMAT", "Of weights: fp8, int8 or int4."),
    "--kv-cache-dtype": ("TYPE", "Of keys and values: bfloat16, float32, fp8 or int8."),
    "--compute-efficiency": ("SHARE", "Of the peak of arithmetic, what is got; 0.7 on GPUs."),
    "--memory-efficiency": ("SHARE", "Of the peak of memory, what is got; 0.8 on GPUs."),
    "--overhead-us": ("US", "Of every step, whatever is in it; 500 on GPUs."),
    "--gpu-memory-utilization": ("SHARE", "Of memory, for weights and KV cache; 0.92."),
}
_WEIGHTS = {"auto": "bf16", "bfloat16": "bf16", "float32": "float32"}
_KV = {**_WEIGHTS, "fp8": "fp8", "int8": "int8"}
_QUANTIZATIONS = ("fp8", "int8", "int4")
_UTILIZATION = 0.92


@dataclass(frozen=True, slots=True)
class Machine:
    """`hardware` and `shape` are None where nobody named them and nothing needs them."""

    model: StepTimeModel
    hardware: Hardware | None
    shape: ModelShape | None
    facts: Mapping[str, Any]
    weight_dtype: str
    kv_dtype: str
    tensor_parallel: int
    utilization: float


def machine_of(own: Mapping[str, str]) -> Machine:
    source = own.get("--step-time", "roofline")
    is_roofline = source == "roofline"
    shape = _shape(own.get("--model-shape", "Llama-3-8B" if is_roofline else None))
    hardware = _hardware(own, "h100" if is_roofline else None)
    weights, kv = _dtypes(own)
    tp = int(_number(own, "--tensor-parallel-size", 1, int))
    utilization = _number(own, "--gpu-memory-utilization", _UTILIZATION)
    if not 0 < utilization <= 1:
        raise FlagError(f"--gpu-memory-utilization must be in (0, 1], got {utilization:g}")
    facts: dict[str, Any] = {"step_time": source}
    if hardware is not None:
        facts["hardware"] = hardware.name
    if shape is not None:
        facts |= {"model": shape.name, "weights": weights, "kv_cache": kv, "tensor_parallel": tp}
    if is_roofline:
        assert shape is not None
        assert hardware is not None
        model: StepTimeModel = roofline(
            shape, hardware, weight_dtype=weights, kv_dtype=kv, tensor_parallel=tp
        )
    else:
        for flag in ("--compute-efficiency", "--memory-efficiency", "--overhead-us"):
            if flag in own:
                raise FlagError(f"{flag} is for --step-time roofline: {source} has its own times")
        model = read_model(source)
    return Machine(model, hardware, shape, facts, weights, kv, tp, utilization)


def _shape(given: str | None) -> ModelShape | None:
    if given is None:
        return None
    path = Path(given)
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file():
        return shape_named(given)
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise FlagError(f"--model-shape {path} cannot be read: {error}") from None
    if not isinstance(values, dict):
        raise FlagError(f"--model-shape {path} must hold a JSON object")
    return shape_from_config(values, str(path))


def _hardware(own: Mapping[str, str], default: str | None) -> Hardware | None:
    name = own.get("--hardware", default)
    if name is None:
        return None
    hardware = hardware_named(name)
    return dataclasses.replace(
        hardware,
        compute_efficiency=_number(own, "--compute-efficiency", hardware.compute_efficiency),
        memory_efficiency=_number(own, "--memory-efficiency", hardware.memory_efficiency),
        overhead_ns=_number(own, "--overhead-us", hardware.overhead_ns / 1000) * 1000,
    )


def _dtypes(own: Mapping[str, str]) -> tuple[str, str]:
    """Of weights, and of keys and values."""
    weights = _choice(own, "--dtype", _WEIGHTS)
    kv = weights if own.get("--kv-cache-dtype") in (None, "auto") else ""
    kv = kv or _choice(own, "--kv-cache-dtype", _KV)
    if "--quantization" in own:
        weights = _choice(own, "--quantization", {name: name for name in _QUANTIZATIONS})
    return weights, kv


def _choice(own: Mapping[str, str], name: str, choices: Mapping[str, str]) -> str:
    given = own.get(name, next(iter(choices)))
    if given not in choices:
        raise FlagError(f"{name} must be one of {', '.join(choices)}, got {given!r}")
    return choices[given]


def _number(
    own: Mapping[str, str], name: str, default: float, kind: Callable[[str], float] = float
) -> float:
    try:
        value = kind(own[name]) if name in own else default
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise FlagError(f"{name} must be {what}, got {own[name]!r}") from None
    if not value >= 0:
        raise FlagError(f"{name} must be at least 0, got {own[name]!r}")
    return value
