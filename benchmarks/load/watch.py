"""Beside the load: /health each half second, the memory of both processes each second."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

from benchmarks.load.server import HOST, Server, resident_bytes

_MIB = 1 << 20
_SETTLED_S = 60.0
_WINDOW = 10  # samples whose median is compared


@dataclass
class Watch:
    """What was seen. Times in seconds since the start; `health` has (when, status, latency)."""

    health: list[tuple[float, int, float]] = field(default_factory=list)
    memory: dict[str, list[tuple[float, int]]] = field(default_factory=dict)

    def worst_health_s(self) -> float:
        return max((latency for _, _, latency in self.health), default=0.0)

    def bad_health(self, limit_s: float) -> list[str]:
        """Each probe that was not 200 within the limit, in words."""
        return [
            f"/health after {when:.1f} s: status {status} in {latency:.2f} s"
            for when, status, latency in self.health
            if status != 200 or latency > limit_s
        ]

    def growth_mib(self, process: str) -> float:
        """How much more memory at the end than after the first minute (or half, if shorter)."""
        samples = self.memory[process]
        begin_s = min(_SETTLED_S, samples[-1][0] / 2)
        settled = [size for when, size in samples if when >= begin_s]
        early, late = settled[:_WINDOW], settled[-_WINDOW:]
        return (statistics.median(late) - statistics.median(early)) / _MIB

    def peak_mib(self, process: str) -> float:
        return max(size for _, size in self.memory[process]) / _MIB


@contextlib.asynccontextmanager
async def watching(server: Server) -> AsyncIterator[Watch]:
    watch, began = Watch(), time.monotonic()
    pids = {"api": server.process.pid, "engine": server.engine_pid}
    tasks = [
        asyncio.create_task(_probe_health(watch, server.port, began)),
        asyncio.create_task(_sample_memory(watch, pids, began)),
    ]
    try:
        yield watch
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _probe_health(watch: Watch, port: int, began: float) -> None:
    while True:
        asked = time.monotonic()
        status = await health_status(port)
        latency = time.monotonic() - asked
        watch.health.append((asked - began, status, latency))
        await asyncio.sleep(max(0.0, 0.5 - latency))


async def health_status(port: int, timeout_s: float = 5.0) -> int:
    """The status of /health over a new connection; 0 for none within `timeout_s`."""
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(HOST, port)
            writer.write(b"GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n")
            line = await reader.readline()
            writer.close()
        return int(line.split(b" ")[1])
    except (OSError, IndexError, ValueError):
        return 0


async def _sample_memory(watch: Watch, pids: dict[str, int], began: float) -> None:
    while True:
        for name, pid in pids.items():
            with contextlib.suppress(OSError):
                sample = (time.monotonic() - began, resident_bytes(pid))
                watch.memory.setdefault(name, []).append(sample)
        await asyncio.sleep(1)
