"""No silent knob: whatever a configuration holds, somebody reads."""

from __future__ import annotations

import ast
import dataclasses
from collections.abc import Iterable
from pathlib import Path

import pytest

from headway.cli.settings import SAME_NAME
from headway.core.config import SchedulerConfig
from headway.engine.config import EngineConfig
from headway.server.config import AppSettings, ServerConfig

SOURCE = Path(__file__).parents[2] / "src" / "headway"
# Who is told what: a field read only by who fills it in is read by nobody.
READERS = {
    SchedulerConfig: ("core",),
    EngineConfig: ("engine", "cli"),
    ServerConfig: ("cli",),
    AppSettings: ("server",),
}


HOLDERS = {"config", "settings", "server", "engine"}
PASSED_ON = set(SAME_NAME)  # to AppSettings, whose own readers are looked for
READ_FROM_FLAGS = {"api_key_file"}  # its keys become those of api_key before there is a config


def modules(folders: Iterable[str]) -> list[ast.Module]:
    paths = [path for folder in folders for path in sorted((SOURCE / folder).rglob("*.py"))]
    return [ast.parse(path.read_text()) for path in paths if path.name != "config.py"]


def names_read(folders: Iterable[str]) -> set[str]:
    """Attributes of what is called a configuration: `self._config.name`, `settings.name`."""
    nodes = [node for module in modules(folders) for node in ast.walk(module)]
    return {n.attr for n in nodes if isinstance(n, ast.Attribute) and holder(n) in HOLDERS}


def holder(node: ast.Attribute) -> str:
    value = node.value
    name = value.attr if isinstance(value, ast.Attribute) else getattr(value, "id", "")
    return name.strip("_")


@pytest.mark.parametrize("config", READERS, ids=lambda config: config.__name__)
def test_every_field_is_read_by_whom_it_is_for(config: type) -> None:
    fields = {field.name for field in dataclasses.fields(config)}
    by_name = PASSED_ON | READ_FROM_FLAGS if config is ServerConfig else set()
    unread = fields - names_read(READERS[config]) - by_name
    assert not unread
