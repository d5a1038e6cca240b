"""Files end at 400 lines, functions at 50."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "headway"
MODULES = sorted(SOURCE.rglob("*.py"))
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 50
MAX_CORE_LINES = 5800


def name(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_files_and_functions_are_short(path):
    text = path.read_text()
    assert len(text.splitlines()) <= MAX_FILE_LINES
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    long = {
        node.name: lines
        for node in ast.walk(ast.parse(text))
        if isinstance(node, functions)
        and (lines := node.end_lineno - node.lineno + 1) > MAX_FUNCTION_LINES
    }
    assert not long


def test_the_core_stays_small():
    total = sum(len(path.read_text().splitlines()) for path in (SOURCE / "core").rglob("*.py"))
    assert total <= MAX_CORE_LINES
