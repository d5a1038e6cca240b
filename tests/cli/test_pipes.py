"""No command waits for what may never come out of a pipe or a device."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headway.cli.main import main

PLAN = ("plan", "Qwen3-8B", "--hardware", "h100")


@pytest.mark.parametrize("path", ["pipe", "pipe.gz", "/dev/zero"])
@pytest.mark.parametrize(
    "words",
    [
        ("explain", "--recording"),
        ("replay",),
        (*PLAN, "--trace"),
        (*PLAN, "--usage"),
        ("simulate", "--trace"),
        ("simulate", "--workload"),
        ("simulate", "--step-time"),
    ],
)
def test_a_pipe_is_refused_with_a_sentence(
    words: tuple[str, ...],
    path: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("pipe", "pipe.gz"):
        os.mkfifo(name)
    assert main([*words, path]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    [line] = told.err.splitlines()
    assert path in line
    assert line.endswith("it is a pipe or a device: save what comes from it first")
