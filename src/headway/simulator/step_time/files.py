"""Step-time models as files: JSON that says what it is, of what version, and in which units."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from headway.simulator.files import open_file
from headway.simulator.step_time.base import StepTimeModel
from headway.simulator.step_time.fitted import FitErrors, FittedModel, Term
from headway.simulator.step_time.roofline import RooflineModel

FORMAT = "headway step-time model"
VERSION = 1
_UNITS = {
    "fitted": "terms: ns for each of `name` above `above`; errors: shares of the measured time",
    "roofline": "bytes and operations of a step on one device, and how many of them a second",
}


def write_model(model: FittedModel | RooflineModel, path: str | Path) -> None:
    """Raises ValueError, with the path, when the file cannot be written."""
    kind, values = _plain(model)
    head = {"format": FORMAT, "version": VERSION, "kind": kind, "units": _UNITS[kind]}
    try:
        Path(path).write_text(json.dumps({**head, **values}, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise ValueError(f"{path} cannot be written: {error.strerror}") from error


def read_model(path: str | Path) -> StepTimeModel:
    """Raises ValueError, with the path, for anything that `write_model` did not write."""
    values = _read_json(path)
    if values.get("format") != FORMAT:
        raise ValueError(f"{path} is not a {FORMAT}: headway calibrate writes them")
    if values.get("version") != VERSION:
        raise ValueError(
            f"{path} has version {values.get('version')!r} of its format, this reads {VERSION}: "
            f"calibrate again"
        )
    make = _MAKE.get(str(values.get("kind")))
    if make is None:
        raise ValueError(f"{path} has a model of an unknown kind, {values.get('kind')!r}")
    try:
        return make(values)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error


def _read_json(path: str | Path) -> Mapping[str, Any]:
    try:
        with open_file(Path(path)) as file:
            values = json.load(file)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not JSON: {error}") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} must hold a JSON object")
    return values


def _plain(model: FittedModel | RooflineModel) -> tuple[str, dict[str, Any]]:
    if isinstance(model, RooflineModel):
        return "roofline", asdict(model)
    return "fitted", {
        "fitted_on": dict(model.fitted_on),
        "terms": [term._asdict() for term in model.terms],
        "errors": asdict(model.errors),
        "seen": {name: list(ends) for name, ends in model.seen.items()},
    }


def _fitted(values: Mapping[str, Any]) -> FittedModel:
    return FittedModel(
        terms=tuple(Term(t["name"], int(t["above"]), float(t["ns"])) for t in values["terms"]),
        errors=FitErrors(**values["errors"]),
        seen={name: (int(least), int(most)) for name, (least, most) in values["seen"].items()},
        fitted_on=dict(values["fitted_on"]),
    )


def _roofline(values: Mapping[str, Any]) -> RooflineModel:
    return RooflineModel(**{field.name: values[field.name] for field in fields(RooflineModel)})


_MAKE: Mapping[str, Callable[[Mapping[str, Any]], StepTimeModel]] = {
    "fitted": _fitted,
    "roofline": _roofline,
}
