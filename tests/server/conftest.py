from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.server.bench import LiveServer, live_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("live")) as live:
        yield live


@pytest.fixture(scope="module")
def slow_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Twenty milliseconds per token: time enough to hang up in the middle."""
    with live_server(tmp_path_factory.mktemp("slow"), "--delay", "0.02") as live:
        yield live
