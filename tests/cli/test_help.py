"""`--help` of every command, at any width."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headway.cli.help import print_about
from headway.cli.main import _COMMANDS, main

ROOT = Path(__file__).parents[2]
COMMANDS = sorted({*_COMMANDS, "bench serve"})
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "guides").glob("*.md"))]
_FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*[a-z0-9](?![\w*-])")
# Of lm_eval, and of vLLM where a page says what is not here.
_OF_OTHERS = frozenset(
    {
        *("--tasks", "--kv-cache-metrics"),
        *("--lora-modules", "--ramp-up-strategy", "--profile", "--plot-timeline"),
        *("--probe-request-rate", "--trust-remote-code", "--skip-tokenizer-init"),
    }
)


def help_of(command: str, columns: int, monkeypatch, capsys) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    assert main([*command.split(), "--help"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", COMMANDS)
def test_it_fits_the_terminal_and_says_the_same_at_any_width(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    narrow = help_of(command, 80, monkeypatch, capsys)
    wide = help_of(command, 160, monkeypatch, capsys)
    assert max(map(len, narrow.splitlines())) <= 80
    assert max(map(len, wide.splitlines())) <= 100
    assert narrow.split() == wide.split()
    assert "docs/" not in narrow, "who has installed it has no docs"


def test_paragraphs_run_on_rows_hang_and_commands_stay(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "32")
    commands = "usage: it\n       or so\n\n  headway it \\\n    on\n\n"
    rows = "  --flag N   what it says of N, at\n             length\n  --longer-flag FILE  other"
    print_about(f"{commands}{rows}\n\none two three\nfour five six seven")
    assert capsys.readouterr().out == (
        f"{commands}  --flag N   what it says of N,\n             at length\n"
        "  --longer-flag FILE\n             other\n\none two three four five six\nseven\n"
    )


def test_a_flag_that_a_guide_names_is_one_of_a_command_or_of_a_benchmark(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    known = set(_OF_OTHERS)
    for path in (ROOT / "benchmarks").rglob("*.py"):
        known.update(_FLAG.findall(path.read_text()))
    for command in COMMANDS:
        known.update(_FLAG.findall(help_of(command, 160, monkeypatch, capsys)))
    for page in PAGES:
        assert set(_FLAG.findall(page.read_text())) <= known, page.name
