"""The tables of docs/guides/metrics.md."""

from __future__ import annotations

from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "metrics.md"


def rows(heading: str) -> list[list[str]]:
    """Cells of the first table under a heading, without its head."""
    section = GUIDE.read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
