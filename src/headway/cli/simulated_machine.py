"""The machine and the model that a simulation is about, from flags."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
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
    "--memory-gib": ("GIB", "Of a device that has no name here, or instead of its own."),
    "--bandwidth-gbs": ("GB/S", "Likewise, its memory's bandwidth."),
    "--tflops": ("N", "Likewise, its peak in products of the weights' type, without sparsity."),
    "--model-shape": ("NAME|FILE", "The model: Llama-3-8B unless given; a config.json, a .gguf."),
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
_POOL_FLAGS = {
    "num_gpu_blocks_override": "--num-gpu-blocks-override",
    "kv_cache_memory_bytes": "--kv-cache-memory-bytes",
}
_DEVICE_FLAGS = ("--memory-gib", "--bandwidth-gbs", "--tflops")
_SHAPE_FLAGS = (
    "--model-shape",
    "--hardware",
    *_DEVICE_FLAGS,
    "--tensor-parallel-size",
    "--dtype",
    "--quantization",
    "--kv-cache-dtype",
)
# What says how large the KV cache is, and what else its number of blocks depends on.
_READ_BY_POOL = {
    "--num-gpu-blocks-override": (),
    "--kv-cache-memory-bytes": (
        "--model-shape",
        "--tensor-parallel-size",
        "--dtype",
        "--kv-cache-dtype",
    ),
}


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
    shape = shape_of_model(own.get("--model-shape", "Llama-3-8B" if is_roofline else None))
    weights, kv = dtypes_of(own)
    hardware = _hardware(own, weights, "h100" if is_roofline else None)
    tp = int(_number(own, "--tensor-parallel-size", 1, int))
    if tp < 1:
        raise FlagError(f"--tensor-parallel-size must be at least 1, got {tp}")
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


def refuse_unread(own: Mapping[str, str], settings: Mapping[str, Any]) -> None:
    """Raises FlagError for a flag that neither the times of steps nor the KV cache depend on."""
    pools = [flag for name, flag in _POOL_FLAGS.items() if name in settings]
    if len(pools) > 1:
        raise FlagError(f"{' and '.join(pools)} both size the KV cache: give one")
    source = own.get("--step-time", "roofline")
    reasons = [] if source == "roofline" else [f"{source} has its own times"]
    reasons += [f"{flag} sizes the KV cache" for flag in pools]
    read = _read_flags(own, pools)
    for flag in (*_SHAPE_FLAGS, "--gpu-memory-utilization"):
        if flag in own and flag not in read:
            name = "a model" if flag == "--model-shape" else flag
            why = " and ".join(reasons) or "--quantization and --kv-cache-dtype say it all"
            raise FlagError(f"{name} changes nothing here, as {why}: leave it out")


def _read_flags(own: Mapping[str, str], pools: Sequence[str]) -> set[str]:
    if own.get("--step-time", "roofline") != "roofline" and pools:
        read = set(_READ_BY_POOL[pools[0]])
    else:
        read = set(_SHAPE_FLAGS)
    if not pools:
        read.add("--gpu-memory-utilization")
    are_weights_given = "--quantization" in own or "--quantization" not in read
    if are_weights_given and own.get("--kv-cache-dtype", "auto") != "auto":
        read.discard("--dtype")
    return read


def shape_of_model(given: str | None) -> ModelShape | None:
    """By name, of a config.json or a directory with one, or of a GGUF file. Raises ValueError."""
    if given is None:
        return None
    path = Path(given).expanduser()
    if path.suffix.lower() == ".gguf":
        return _shape_of_gguf(path)
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file():
        if path.parent.is_dir() and path.name == "config.json":
            raise FlagError(f"{path.parent} has no config.json: is it a model's directory?")
        return shape_named(given)
    from headway.model.hf_config import read_json

    return shape_from_config(read_json(path), str(path))


def _shape_of_gguf(path: Path) -> ModelShape:
    from headway.model.gguf_config import gguf_config
    from headway.model.weights.gguf import read_gguf

    config = gguf_config(read_gguf(path))
    return ModelShape(
        name=path.name,
        num_layers=config.num_layers,
        hidden_size=config.hidden_size,
        num_heads=config.num_heads,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        intermediate_size=config.intermediate_size,
        vocab_size=config.vocab_size,
        tie_word_embeddings=config.tie_word_embeddings,
        qkv_bias=config.qkv_bias,
        qk_norm=config.qk_norm,
        max_positions=config.max_position_embeddings,
    )


def _hardware(own: Mapping[str, str], weights: str, default: str | None) -> Hardware | None:
    given = [flag for flag in _DEVICE_FLAGS if flag in own]
    name = own.get("--hardware", None if len(given) == len(_DEVICE_FLAGS) else default)
    if name is None and not given:
        return None
    hardware = hardware_named(name) if name is not None else None
    if given:
        hardware = _device(own, weights, hardware)
    assert hardware is not None
    return dataclasses.replace(
        hardware,
        compute_efficiency=_number(own, "--compute-efficiency", hardware.compute_efficiency),
        memory_efficiency=_number(own, "--memory-efficiency", hardware.memory_efficiency),
        overhead_ns=_number(own, "--overhead-us", hardware.overhead_ns / 1000) * 1000,
    )


def _device(own: Mapping[str, str], weights: str, base: Hardware | None) -> Hardware:
    """A device by its numbers; those that are not given are the base's."""
    numbers = {flag: _number(own, flag, 0.0) for flag in _DEVICE_FLAGS if flag in own}
    for flag, value in numbers.items():
        if not value:
            raise FlagError(f"{flag} must be above 0, got {own[flag]!r}")
    if base is None:
        base = Hardware(
            name="your device",
            peak_flops={weights: 1.0},
            memory_bytes=1,
            memory_bytes_per_second=1.0,
            sources={},
        )
    memory_gib, gb_per_second, tflops = (numbers.get(flag) for flag in _DEVICE_FLAGS)
    return dataclasses.replace(
        base,
        name=base.name if base.name == "your device" else f"{base.name} with other numbers",
        memory_bytes=base.memory_bytes if memory_gib is None else int(memory_gib * 2**30),
        memory_bytes_per_second=(
            base.memory_bytes_per_second if gb_per_second is None else gb_per_second * 1e9
        ),
        peak_flops=base.peak_flops
        if tflops is None
        else {**base.peak_flops, weights: tflops * 1e12, "bf16": tflops * 1e12},
    )


def dtypes_of(own: Mapping[str, str]) -> tuple[str, str]:
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
    own: Mapping[str, str],
    name: str,
    default: float,
    kind: Callable[[str], float] = float,
    most: float = 1e9,
) -> float:
    try:
        value = kind(own[name]) if name in own else default
    except ValueError:
        what = "a whole number" if kind is int else "a number"
        raise FlagError(f"{name} must be {what}, got {own[name]!r}") from None
    if not 0 <= value <= most:
        raise FlagError(f"{name} must be in [0, {most:g}], got {own[name]!r}")
    return value
