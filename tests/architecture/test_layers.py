"""Who may import whom: the table is the documentation, this test keeps it true."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "headway"
MODULES = sorted(SOURCE.rglob("*.py"))

# A package may import itself and, of headway, what starts with one of these.
MAY_IMPORT: dict[str, tuple[str, ...]] = {
    "core": (),
    "drive": ("core",),
    "simulator": ("drive", "core"),
    "replay": ("drive", "core", "simulator"),
    "model": ("ops",),
    "ops": (),
    "engine": ("drive", "core", "model", "ops", "wire"),
    "text": ("core.request", "core.events"),
    "wire": ("core.request", "core.events"),
    "insight": ("core", "drive.record", "drive.ports", "simulator"),
    "server": ("wire", "text", "insight", "core", "__version__"),
    "bench": ("insight", "simulator", "replay"),
    "console": ("insight", "simulator", "replay"),
    "flags": ("core.config", "engine.config", "server.config"),
    "outputs": (),
}
# What joins the engine and the text side (docs/decisions/0005).
MAY_IMPORT_EVERYTHING = ("cli", "llm", "collector", "model_text", "__init__", "__main__")
FORBIDDEN_STDLIB = {"time", "random", "os", "logging", "asyncio", "threading", "socket"}
PURE = ("core", "drive")


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


def imports(path: Path) -> list[str]:
    """Absolute names; `from headway import core` counts as headway.core."""
    names: list[str] = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            module = node.module or ""
            from_package = (
                module == "headway" or (SOURCE.parent / module.replace(".", "/")).is_dir()
            )
            names += [f"{module}.{a.name}" for a in node.names] if from_package else [module]
    return names


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_imports_point_one_way(path):
    package = module_name(path).split(".")[0]
    if package in MAY_IMPORT_EVERYTHING:
        return
    allowed = (package, *MAY_IMPORT[package])
    inside = [
        name.removeprefix("headway.") for name in imports(path) if name.startswith("headway.")
    ]
    wrong = [n for n in inside if not any(n == a or n.startswith(f"{a}.") for a in allowed)]
    assert not wrong, f"{module_name(path)} imports {wrong}, may import {allowed}"


@pytest.mark.parametrize(
    "path", [p for p in MODULES if module_name(p).split(".")[0] in PURE], ids=module_name
)
def test_core_and_drive_use_the_pure_standard_library_only(path):
    tops = {name.split(".")[0] for name in imports(path)} - {"headway"}
    assert tops <= sys.stdlib_module_names
    assert not tops & FORBIDDEN_STDLIB


def test_core_and_drive_load_nothing_heavy():
    code = (
        "import sys, headway.core.scheduler, headway.drive.invariants, headway.drive.loop;"
        "heavy = {'numpy', 'torch', 'msgspec', 'asyncio', 'logging'} & set(sys.modules);"
        "sys.exit(str(heavy) if heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(SOURCE.parent)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_package_has_a_row_in_the_table():
    packages = {module_name(path).split(".")[0] for path in MODULES}
    assert packages <= {*MAY_IMPORT, *MAY_IMPORT_EVERYTHING}
