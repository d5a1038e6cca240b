"""Waiting for what a server does a moment later."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks.load.server import Server


def is_soon(condition: Callable[[], bool], within_s: float = 5.0) -> bool:
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return condition()


def is_soon_idle(server: Server) -> bool:
    """Whether nothing runs, waits or holds blocks any more."""
    return is_soon(
        lambda: (
            server.metric("vllm:num_requests_running") == 0
            and server.metric("vllm:num_requests_waiting") == 0
            and server.metric("headway:blocks", state="held") == 0
        )
    )
