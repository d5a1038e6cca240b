"""`headway collect-env`: what stands in a report of a fault, and what does not."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path

import pytest

from headway.cli import main as cli
from headway.cli.collect_env import PACKAGES, collected

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def test_all_dependencies_are_told() -> None:
    required = tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]
    assert list(PACKAGES) == [re.split(r"[\[>=<~ ]", each)[0] for each in required]


def test_keys_and_tokens_are_never_shown() -> None:
    environ = {
        "HEADWAY_API_KEY": "sesame",
        "VLLM_API_KEY": "sesame",
        "HF_TOKEN": "sesame",
        "HEADWAY_ISA": "avx2",
        "HOME": "/home/sesame",
        "OPENAI_API_KEY": "sesame",
    }
    found = collected(environ)["Environment"]
    assert found == {
        "HEADWAY_API_KEY": "set, not shown",
        "HEADWAY_ISA": "'avx2'",
        "HF_TOKEN": "set, not shown",
        "VLLM_API_KEY": "set, not shown",
    }


@pytest.mark.parametrize(
    ("isa", "chosen"),
    [("portable", "cpu/portable"), ("reference", "reference"), ("z80", "none: ")],
)
def test_it_says_which_kernels_run(
    isa: str, chosen: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HEADWAY_ISA", isa)
    assert cli.main(["collect-env", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["Kernels"]["chosen"].startswith(chosen)
    assert "portable" in told["Kernels"]["can run"]
    assert set(told) == {"Software", "Machine", "Kernels", "Environment"}


def test_it_prints_a_line_for_each_fact(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["collect-env"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(re.fullmatch(r"  headway +\d+\.\d+.*", line) for line in lines)
    assert any(re.fullmatch(r"  memory +[\d.]+ GiB, of which .*", line) for line in lines)
    assert cli.main(["collect-env", "--all"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
