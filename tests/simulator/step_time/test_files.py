"""A model is the same after a file; what is no model is refused with a sentence."""

from __future__ import annotations

import json
from dataclasses import asdict

import pytest
from synthetic import observed

from headway.simulator.step_time.files import read_model, write_model
from headway.simulator.step_time.fitted import fit
from headway.simulator.step_time.hardware import hardware_named
from headway.simulator.step_time.models import shape_named
from headway.simulator.step_time.roofline import roofline

FITTED = fit(observed(200, noise=0.02), fitted_on={"model": "tiny", "num_threads": 2})
ROOFLINE = roofline(shape_named("Mixtral-8x7B"), hardware_named("h200"), combine="parts")


@pytest.mark.parametrize("model", [FITTED, ROOFLINE], ids=["fitted", "roofline"])
def test_a_model_survives_its_file(model, tmp_path):
    path = tmp_path / "model.json"
    write_model(model, path)
    assert read_model(path) == model
    written = json.loads(path.read_text())
    assert written["version"] == 1
    assert written["units"]


def damaged(**changes) -> str:
    values = {
        "format": "headway step-time model",
        "version": 1,
        "kind": "fitted",
        "terms": [],
        "errors": asdict(FITTED.errors),
        "seen": {},
        "fitted_on": {},
    }
    return json.dumps({**values, **changes})


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("{", "is not JSON"),
        ("[]", "must hold a JSON object"),
        ("{}", "is not a headway step-time model: headway calibrate writes them"),
        (damaged(version=2), "has version 2 of its format, this reads 1: calibrate again"),
        (damaged(kind="oracle"), "of an unknown kind, 'oracle'"),
        (damaged(errors={}), "is damaged"),
        (damaged(terms=[{"name": "tokens"}]), "is damaged: 'above'"),
        (damaged(terms=[{"name": "moons", "above": 0, "ns": 1}]), "nothing is counted as 'moons'"),
        (damaged(kind="roofline"), "is damaged: 'weight_bytes'"),
    ],
)
def test_what_is_no_model_is_refused(text, sentence, tmp_path):
    path = tmp_path / "model.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=rf"model\.json .*{sentence}"):
        read_model(path)


def test_files_that_cannot_be_read_or_written(tmp_path):
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        read_model(tmp_path / "none.json")
    with pytest.raises(ValueError, match="cannot be written: No such file"):
        write_model(ROOFLINE, tmp_path / "none" / "model.json")
