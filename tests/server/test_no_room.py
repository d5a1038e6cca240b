"""Where there is no file, socket or process more: said, survived, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
import zmq

from headway.server.engine_client import EngineClient, EngineStartError
from headway.server.engine_link import EngineLink
from tests.server import fake_engine
from tests.server.bench import live_server
from tests.server.test_restart import until


@pytest.fixture
def own_tmp(monkeypatch: pytest.MonkeyPatch) -> Any:
    with tempfile.TemporaryDirectory() as own:  # short: a socket's path has a limit
        monkeypatch.setattr(tempfile, "tempdir", own)
        yield Path(own)


def failing(error: Exception) -> Callable[[str, str], subprocess.Popen[bytes]]:
    def start(*addresses: str) -> subprocess.Popen[bytes]:
        raise error

    return start


@pytest.mark.parametrize("error", [OSError("no process"), zmq.ZMQError(24), MemoryError()])
def test_a_link_that_cannot_be_made_leaves_nothing(own_tmp: Path, error: Exception) -> None:
    num_files = len(os.listdir("/proc/self/fd"))
    wanted = MemoryError if isinstance(error, MemoryError) else EngineStartError
    with pytest.raises(wanted):
        EngineLink(failing(error))
    assert not list(own_tmp.iterdir())
    assert len(os.listdir("/proc/self/fd")) <= num_files


def test_a_path_too_long_for_a_socket_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with pytest.raises(EngineStartError, match="the engine cannot be started: "):
        EngineLink(fake_engine.start(tmp_path / "log"))
    assert not list(deep.iterdir())


@pytest.mark.parametrize("error", [OSError("no process"), zmq.ZMQError(24), RuntimeError("thread")])
def test_the_engine_comes_back_when_there_is_room_again(
    tmp_path: Path, own_tmp: Path, error: Exception
) -> None:
    good = fake_engine.start(tmp_path / "log")
    starts = iter([good, failing(error), good])

    async def scene() -> None:
        client = EngineClient(lambda *addresses: next(starts)(*addresses))
        try:
            await client.wait_ready()
            os.kill(client.engine_pid, signal.SIGKILL)
            await until(lambda: not client.health().is_ok)
            await until(lambda: str(error) in client.health().reason)
            await until(lambda: client.health().is_ok)
        finally:
            await client.close()

    asyncio.run(scene())
    assert not list(own_tmp.iterdir())


def test_the_supervisor_outlives_an_engine_that_cannot_be_buried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To wait for its end takes a thread, and there may be none."""
    bury = EngineLink.close
    failures = iter([RuntimeError("can't start new thread")])

    async def close(link: EngineLink) -> None:
        for error in failures:
            raise error
        await bury(link)

    monkeypatch.setattr(EngineLink, "close", close)
    with live_server(tmp_path) as live:
        os.kill(live.client.engine_pid, signal.SIGKILL)
        live.wait_for(lambda: "new thread" in httpx.get(live.url + "/health").text)
        live.wait_for(lambda: httpx.get(live.url + "/health").status_code == 200)
