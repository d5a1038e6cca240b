"""What README and the guide print is what the commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from headway.cli.main import main
from headway.simulator.inert import inert_knobs

ROOT = Path(__file__).parents[2]
GUIDES = ROOT / "docs" / "guides"
PAGES = (ROOT / "README.md", GUIDES / "simulating.md", GUIDES / "planning.md")
_BLOCK = re.compile(r"```console\n\$ headway (.*)\n((?:(?!```).*\n)*)```")
SHOWN = [match for page in PAGES for match in _BLOCK.findall(page.read_text())]


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried must not depend on how fast the machine is."""
    monkeypatch.setitem(inert_knobs.__kwdefaults__, "seconds", 600.0)


@pytest.mark.parametrize(("line", "output"), SHOWN, ids=[line[:20] for line, _ in SHOWN])
def test_printed_output(line: str, output: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(shlex.split(line)) == 0
    assert capsys.readouterr().out == output


def test_the_pages_show_something() -> None:
    assert len(SHOWN) >= 4


def test_the_python_of_the_guide_runs(capsys: pytest.CaptureFixture[str]) -> None:
    [code] = re.findall(r"```python\n(.*?)```", PAGES[1].read_text(), re.DOTALL)
    exec(compile(code, str(PAGES[1]), "exec"), {})
    assert "max_num_seqs" in capsys.readouterr().out
