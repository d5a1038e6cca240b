"""Tables that are wider than the terminal."""

from __future__ import annotations

import sys

import pytest

from headway.cli.tables import print_table, print_text

HEADER = ("rate", "policy", "tokens/s", "TTFT p50", "p99")
ROWS = [("4", "on-demand", "946.1", "20.8 ms", "91.2 ms"), ("16", "fair", "2,437", "2.9 s", "7 s")]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_columns_that_do_not_fit_stand_below_with_their_names(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "36")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    print_table(HEADER, ROWS, num_names=2)
    lines = capsys.readouterr().out.splitlines()
    if is_terminal:
        assert lines == [
            "rate     policy  tokens/s  TTFT p50",
            "4     on-demand     946.1   20.8 ms",
            "16         fair     2,437     2.9 s",
            "",
            "rate     policy      p99",
            "4     on-demand  91.2 ms",
            "16         fair      7 s",
        ]
    else:
        assert lines[1] == "4     on-demand     946.1   20.8 ms  91.2 ms"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_text_is_folded_on_a_terminal_only(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    print_text("  one two three max-num-seqs four", "five")
    folded = "  one two three\n    max-num-seqs four\nfive\n"
    whole = "  one two three max-num-seqs four\nfive\n"
    assert capsys.readouterr().out == (folded if is_terminal else whole)
