"""One real server with the default model for the whole folder, as a user starts it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from benchmarks.load.server import Server, running


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    with running(["--kv-cache-memory-bytes", "1g"]) as live:
        yield live


@pytest.fixture(scope="session")
def base_url(server: Server) -> str:
    return f"{server.url}/v1"


@pytest.fixture(scope="session")
def model(server: Server) -> str:
    return server.model()
