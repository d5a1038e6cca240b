"""What the documents name exists: files, and `file:symbol`."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
PLACE = re.compile(
    r"`((?:tests|src|core|drive|engine|model|ops|text|server|insight|cli|native|simulator|replay)/[\w./]*)(?::(\w+))?`"
)


@pytest.mark.parametrize("document", DOCS, ids=lambda path: path.name)
def test_places_named_in_documents_exist(document: Path) -> None:
    for place, symbol in PLACE.findall(document.read_text()):
        path = next(
            (base / place for base in (ROOT, ROOT / "src" / "headway") if (base / place).exists()),
            None,
        )
        assert path is not None, f"{document.name} names {place}, which is not there"
        if symbol:
            found = re.search(rf"\b(def|class) {symbol}\b", path.read_text())
            assert found, f"{document.name} names {place}:{symbol}, which is not there"


def test_there_is_something_to_check() -> None:
    places = [found for document in DOCS for found in PLACE.findall(document.read_text())]
    assert len(places) > 40


@pytest.mark.parametrize("document", DOCS, ids=lambda path: path.name)
def test_links_between_documents_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        if "://" not in target:
            assert (document.parent / target).exists(), f"{document.name} links to {target}"
