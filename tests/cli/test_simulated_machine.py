"""The machine of a command line: which flags are read, and where fitted times are left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headway.cli.main import main
from headway.cli.simulation import setup_of
from headway.flags import FlagError
from headway.simulator.step_time.files import write_model
from headway.simulator.step_time.fitted import COUNTS, FitErrors, FittedModel, Term
from headway.simulator.step_time.hardware import hardware_named
from headway.simulator.step_time.models import shape_named
from headway.simulator.step_time.roofline import roofline

SMALL = ["--arrivals", "at-once", "--requests", "20", "--prompt-tokens", "100"]
SMALL += ["--output-tokens", "20", "--num-gpu-blocks-override", "64"]


def run(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


@pytest.fixture
def step_times(tmp_path: Path) -> str:
    path = tmp_path / "step-time.json"
    write_model(roofline(shape_named("Qwen3-8B"), hardware_named("l4")), path)
    return str(path)


MACHINE = {
    "--model-shape": "Qwen3-8B",
    "--hardware": "a100",
    "--tensor-parallel-size": "2",
    "--dtype": "float32",
    "--quantization": "int8",
    "--kv-cache-dtype": "fp8",
    "--gpu-memory-utilization": "0.5",
}


@pytest.mark.parametrize(
    ("pool", "unread"),
    [
        (["--num-gpu-blocks-override", "64"], set(MACHINE)),
        (
            ["--kv-cache-memory-bytes", "1GiB"],
            {"--hardware", "--quantization", "--gpu-memory-utilization"},
        ),
        ([], set()),
    ],
)
def test_a_file_of_times_leaves_only_what_the_pool_needs(
    pool: list[str], unread: set[str], step_times: str
) -> None:
    base = [*SMALL[:-2], "--step-time", step_times, *pool]
    if pool[:1] != ["--num-gpu-blocks-override"]:
        base += ["--model-shape", "Qwen3-8B"]
    if not pool:
        base += ["--hardware", "a100"]
    setup_of(base)
    for flag, value in MACHINE.items():
        words = base if flag in base else [*base, flag, value]
        if flag in unread:
            name = "a model" if flag == "--model-shape" else flag
            with pytest.raises(FlagError, match=f"^{name} changes nothing here"):
                setup_of(words)
        else:
            setup_of(words)


@pytest.fixture
def fitted(tmp_path: Path) -> str:
    """Times fitted to steps of at most 4 decodes, and to prompts of any length."""
    errors = FitErrors(num_fitted=9, num_left_out=0, num_held_out=2, median=0, p90=0, total=0)
    seen = dict.fromkeys(COUNTS, (0, 10**9)) | {"decodes": (0, 4)}
    path = tmp_path / "fitted.json"
    terms = (Term("steps", 0, 1e6),)
    write_model(FittedModel(terms=terms, errors=errors, seen=seen), path)
    return str(path)


BEYOND = "Beyond the steps that the times were fitted to: decodes up to 9 (seen: 4).\n"


def test_a_run_beyond_what_was_fitted_says_so(
    fitted: str, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["simulate", *SMALL, "--step-time", fitted, "--no-inert"]
    assert BEYOND in run(words, capsys)
    assert json.loads(run([*words, "--json", "-"], capsys))["beyond_fit"] == {"decodes": [0, 9]}
    swept = ["sweep", *words[1:-1], "--sweep", "max-num-seqs=2,6,9"]
    assert run(swept, capsys).count(BEYOND) == 1
    points = json.loads(run([*swept, "--json", "-"], capsys))
    ranges = [{}, {"decodes": [0, 6]}, {"decodes": [0, 9]}]
    assert [point["beyond_fit"] for point in points] == ranges
    words += ["--max-num-seqs", "4"]
    assert "Beyond" not in run(words, capsys)
    assert json.loads(run([*words, "--json", "-"], capsys))["beyond_fit"] == {}
