"""A server process of its own, with the fake engine."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def command(log: Path, server_flags: list[str], *engine_flags: str) -> list[str]:
    words = [sys.executable, "-m", "tests.cli.serve_fake", str(log)]
    return [*words, json.dumps(["--host", "127.0.0.1", *server_flags]), *engine_flags]


@contextmanager
def running(
    log: Path, *engine_flags: str, server_flags: tuple[str, ...] = ()
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """The address of a healthy server and its process."""
    port = free_port()
    words = command(log, ["--port", str(port), *server_flags], *engine_flags)
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_healthy(url, process)
        yield url, process
    finally:
        if process.poll() is None:
            process.terminate()
        process.communicate(timeout=20)


def wait_until_healthy(url: str, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline and process.poll() is None:
        try:
            if httpx.get(url + "/health").status_code == 200:
                return
        except httpx.HTTPError:
            time.sleep(0.05)
    raise AssertionError("the server did not start")
