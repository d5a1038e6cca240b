"""Every figure that the two articles print, with its tolerance and what its reconstruction gave."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Figure:
    article: int
    name: str
    published: Any
    reproduced: Any
    kind: str
    tolerance: dict[str, Any]
    band: tuple[float, float, float] | None  # percentiles 5, 50, 95 of fresh draws

    @property
    def place(self) -> tuple[int, str]:
        return self.article, self.name

    def check(self, value: Any) -> None:
        """Against the printed figure."""
        allowed = self.tolerance.get("value")
        match self.tolerance["mode"]:
            case "equal":
                assert value == self.published
            case "abs":
                assert value == pytest.approx(self.published, rel=0, abs=allowed)
            case "rel":
                assert value == pytest.approx(self.published, rel=allowed, abs=0)
            case mode:
                raise AssertionError(f"{self.name}: a tolerance of mode {mode!r}")


def _figures() -> dict[tuple[int, str], Figure]:
    items = json.loads((HERE / "expected.json").read_text())["items"]
    figures = [
        Figure(
            item["article"],
            item["name"],
            item["published"],
            item["reproduced"],
            item["kind"],
            item["tolerance"],
            tuple(band) if (band := item.get("fresh_draw_p05_p50_p95")) else None,
        )
        for item in items
    ]
    found = {figure.place: figure for figure in figures}
    assert len(found) == len(items), "two figures of one name"
    return found


FIGURES = _figures()


def published(article: int, name: str) -> Any:
    """For figures that are arithmetic of other printed ones."""
    return FIGURES[article, name].published
