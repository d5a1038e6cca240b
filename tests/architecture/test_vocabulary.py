"""Names that say nothing, or that mean something else here, are not used."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "headway"
MODULES = sorted(SOURCE.rglob("*.py"))
BANNED_IN_CLASSES = ("Manager", "Handler", "Helper", "Processor", "Data", "Info", "Context")
BANNED_WORDS = {"utils", "common", "misc", "impl", "slot_mapping", "helper", "manager"}


def name(path: Path) -> str:
    return str(path.relative_to(SOURCE))


def words(camel: str) -> list[str]:
    return re.findall(r"[A-Z]+(?![a-z])|[A-Z][a-z0-9]*", camel)


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_no_banned_names(path):
    defined = [
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    classes = [n for n in defined if set(words(n)) & set(BANNED_IN_CLASSES)]
    assert not classes
    snake = [n for n in (path.stem, *defined) if set(n.strip("_").split("_")) & BANNED_WORDS]
    assert not snake
    assert "slot_mapping" not in path.read_text()
