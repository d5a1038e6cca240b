"""`headway COMMAND`: how commands that print end when printing, or counting, goes no further."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway.cli import main as cli

WORKLOAD = ["--rate", "1", "--requests", "3", "--prompt-tokens", "10", "--output-tokens", "5"]
PRINTING = [
    ["--help"],
    ["--version"],
    ["simulate", "--help"],
    ["simulate", *WORKLOAD, "--json", "-"],
    ["replay", "--help"],
    ["chat", "--help"],
]


def headway(words: list[str], stdout: int) -> tuple[int, str]:
    """Exit code and what stands on standard error."""
    command = [sys.executable, "-m", "headway", *words]
    ended = subprocess.run(
        command, stdout=stdout, stderr=subprocess.PIPE, text=True, timeout=60, check=False
    )
    return ended.returncode, ended.stderr


@pytest.mark.parametrize("words", PRINTING, ids=" ".join)
def test_a_reader_that_has_gone_is_no_error(words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        assert headway(words, writing) == (141, "")
    finally:
        os.close(writing)


def test_nowhere_to_print_to_is_no_error() -> None:
    words = ["sh", "-c", '"$@" >&-', "sh", sys.executable, "-m", "headway", "simulate", *WORKLOAD]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_a_full_disk_is_one_sentence() -> None:
    with Path("/dev/full").open("w") as file:
        code, told = headway(["simulate", *WORKLOAD], file.fileno())
    assert (code, told) == (1, "headway simulate: standard output: No space left on device\n")


@pytest.mark.parametrize("error", [OverflowError("too far"), RecursionError(), MemoryError()])
def test_what_is_out_of_any_range_is_one_sentence(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(argv: object) -> int:
        raise error

    monkeypatch.setitem(cli._COMMANDS, "sweep", fail)
    assert cli.main(["sweep"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("headway sweep: a number is too large or too small, or a file")
    assert told.endswith(f"to work with: {str(error) or type(error).__name__}\n")


@pytest.mark.parametrize("command", ["chat", "doctor"])
def test_ctrl_c_while_a_command_is_still_being_imported(
    command: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def interrupted(argv: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setitem(cli._COMMANDS, command, interrupted)
    assert cli.main([command]) == 130
    assert capfd.readouterr() == ("", "")
