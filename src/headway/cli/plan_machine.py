"""This machine in a plan: its steps are measured on the engine itself."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headway.cli.simulated_machine import Machine, dtypes_of, machine_of, shape_of_model
from headway.flags import FlagError

if TYPE_CHECKING:
    from headway.engine.build import Engine
    from headway.simulator.step_time.fitted import FittedModel

_OF_ROOFLINE = (
    "--memory-gib",
    "--bandwidth-gbs",
    "--tflops",
    "--tensor-parallel-size",
    "--compute-efficiency",
    "--memory-efficiency",
    "--overhead-us",
    "--gpu-memory-utilization",
)
_MOST_SEQUENCES = 256
_ENGINE_FIELDS = {
    "--dtype": "dtype",
    "--quantization": "quantization",
    "--kv-cache-dtype": "kv_cache_dtype",
}


def measured_machine(
    own: Mapping[str, str], model: str | None, settings: Mapping[str, Any], seconds: float
) -> Machine:
    """Raises FlagError, or what building the engine raises."""
    for flag in _OF_ROOFLINE:
        if flag in own:
            raise FlagError(f"{flag} is not for this machine, which is measured: leave it out")
    if "--step-time" in own:
        return machine_of(own)
    shape = shape_of_model(own["--model-shape"])
    weights, kv = dtypes_of(own)
    engine = _engine(own, model, settings)
    fitted = _measured(engine, seconds)
    facts = {
        "step_time": f"measured here for {seconds:g} s",
        "hardware": str(fitted.fitted_on["machine"]),
        "threads": engine.facts.num_threads,
        "model": engine.facts.model,
        "weights": weights,
        "kv_cache": kv,
        "fit_error": fitted.errors.median,
    }
    return Machine(fitted, None, shape, facts, weights, kv, 1, 1.0)


def _engine(own: Mapping[str, str], model: str | None, settings: Mapping[str, Any]) -> Engine:
    from headway.cli.calibration import NoInbox
    from headway.engine.build import build_engine
    from headway.engine.config import EngineConfig
    from headway.model.default_model import DEFAULT_NAME

    fields: dict[str, Any] = {
        field: own[flag] for flag, field in _ENGINE_FIELDS.items() if flag in own
    }
    fields |= {name: value for name, value in settings.items() if name != "prefill_placement"}
    fields.setdefault("max_num_seqs", _MOST_SEQUENCES)  # steps of all sizes are measured
    if model == DEFAULT_NAME:
        model = None
    if model is not None and _has_no_weights(Path(model).expanduser()):
        fields["load_format"] = "dummy"
    try:
        return build_engine(EngineConfig(model=model, **fields), NoInbox())
    except OSError as error:
        raise FlagError(f"{model or DEFAULT_NAME} cannot be loaded: {error}") from None


def _has_no_weights(path: Path) -> bool:
    """Steps take as long with made-up ones."""
    return path.is_dir() and not any(path.glob("*.safetensors"))


def _measured(engine: Engine, seconds: float) -> FittedModel:
    from headway.cli.calibration import measure
    from headway.cli.machine import processor_name
    from headway.engine.garbage import rarely_look_for_garbage
    from headway.simulator.step_time.fitted import fit

    rarely_look_for_garbage()
    print(f"measuring steps of {engine.facts.model} for {seconds:g} s", file=sys.stderr)
    try:
        observations = measure(engine, seconds=seconds)
    except RuntimeError as error:
        raise FlagError(str(error)) from None
    return fit(observations, fitted_on={"machine": processor_name()})
