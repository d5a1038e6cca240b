"""Does the server live, and do streams keep their pace, beside clients that speak garbage?

    python -m benchmarks.load.fuzz [--tokens 100] [--seed 1] [-- SERVE FLAGS]

One stream runs beside each attack in turn: random bytes, truncated and lying bodies, pipelined
garbage, huge and endless headers, half-open sockets, readers that do not read, a thousand idle
connections. Compares its gaps between tokens with those of a quiet run of the same stream, before
and after. Exits with 1 when the server dies, answers with a 5xx, or the 99th percentile of the gaps
exceeds --most times the quiet one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import random
import socket
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass, field

from benchmarks.load.exchange import Exchange
from benchmarks.load.server import HOST, Server, num_open_files, resident_bytes, running
from benchmarks.load.watch import health_status

_STREAM = {"prompt": "Count:", "ignore_eos": True, "temperature": 0, "stream": True}
_PATH = "/v1/completions"
_HEAD = b"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
_SLACK_MS = 10.0  # that a gap may grow in any case: what one core more or less busy makes


@dataclass
class Report:
    """First lines of the answers, counted by status."""

    statuses: dict[str, int] = field(default_factory=dict)

    def add(self, answer: bytes) -> None:
        status = answer[9:12].decode("latin-1") if answer.startswith(b"HTTP/1.1 ") else "none"
        self.statuses[status] = self.statuses.get(status, 0) + 1

    @property
    def num_faults(self) -> int:
        """Garbage may be refused or cut off; it may not be a fault of the server."""
        return sum(n for status, n in self.statuses.items() if status in ("500", "502", "504"))


@contextlib.asynccontextmanager
async def connected(port: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def shout(port: int, raw: bytes, report: Report, *, wait_s: float = 0.2) -> None:
    """Send these bytes, read what comes for a moment, and hang up."""
    with contextlib.suppress(OSError):
        async with connected(port) as (reader, writer):
            writer.write(raw)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    report.add(await reader.read(2000))


async def random_bytes(port: int, rng: random.Random, report: Report) -> None:
    await shout(port, rng.randbytes(rng.randrange(1, 4000)), report)


async def broken_requests(port: int, rng: random.Random, report: Report) -> None:
    """A good request with some bytes changed, cut or doubled."""
    body = b'{"prompt": "x", "max_tokens": 1}'
    good = bytearray(_HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
    for _ in range(rng.randrange(1, 6)):
        good[rng.randrange(len(good))] = rng.randrange(256)
    await shout(port, bytes(good[: rng.randrange(1, len(good) + 1)]), report)


async def lying_lengths(port: int, rng: random.Random, report: Report) -> None:
    lengths = (b"-1", b"99999999999999999999", b"5, 6", b"0x10", b"4\r\ncontent-length: 5")
    await shout(port, _HEAD + b"content-length: " + rng.choice(lengths) + b"\r\n\r\n{}", report)


async def broken_chunks(port: int, rng: random.Random, report: Report) -> None:
    chunks = (b"zz\r\n{}\r\n0\r\n\r\n", b"fffffffff\r\n", b"2\r\n{}0\r\n\r\n", b"2;" + b"x" * 9000)
    await shout(port, _HEAD + b"transfer-encoding: chunked\r\n\r\n" + rng.choice(chunks), report)


async def pipelined_garbage(port: int, rng: random.Random, report: Report) -> None:
    get = b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n"
    await shout(port, get * rng.randrange(2, 50) + rng.randbytes(200) + get, report)


async def huge_headers(port: int, rng: random.Random, report: Report) -> None:
    many = b"".join(b"x-%d: %s\r\n" % (i, b"y" * 60) for i in range(rng.randrange(200, 4000)))
    one = b"x: " + b"y" * rng.randrange(20_000, 400_000) + b"\r\n"
    await shout(port, b"GET /health HTTP/1.1\r\nhost: x\r\n" + rng.choice((many, one)), report)


async def huge_bodies(port: int, rng: random.Random, report: Report) -> None:
    """Announced as 2 GB; then as much of it as the server takes in a moment."""
    with contextlib.suppress(OSError, TimeoutError):
        async with connected(port) as (reader, writer), asyncio.timeout(0.5):
            writer.write(_HEAD + b"content-length: 2000000000\r\n\r\n")
            report.add(await reader.read(2000))
            while True:
                writer.write(b"[" * 65536)
                await writer.drain()


async def deep_json(port: int, rng: random.Random, report: Report) -> None:
    body = rng.choice((b'{"prompt":' + b"[" * 100_000, b'{"a":' * 50_000, b"9" * 100_000))
    await shout(port, _HEAD + b"content-length: %d\r\n\r\n" % len(body) + body, report)


async def half_open(port: int, rng: random.Random, report: Report) -> None:
    """A request, its end never sent; the client says that it will send no more."""
    with contextlib.suppress(OSError, TimeoutError):
        async with connected(port) as (reader, writer), asyncio.timeout(1):
            writer.write(_HEAD[: rng.randrange(1, len(_HEAD))])
            if writer.can_write_eof():
                writer.write_eof()
            report.add(await reader.read(2000))


async def readers_that_do_not_read(port: int, rng: random.Random, report: Report) -> None:
    """Ask for a stream with a tiny window, take nothing, and go after a while."""
    raw = socket.socket()
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
    raw.setblocking(False)
    body = b'{"prompt": "x", "max_tokens": 50, "stream": true, "ignore_eos": true, "logprobs": 20}'
    try:
        await asyncio.get_running_loop().sock_connect(raw, (HOST, port))
        raw.send(_HEAD + b"content-length: %d\r\n\r\n" % len(body) + body)
        await asyncio.sleep(0.5)
    except OSError:
        pass
    finally:
        raw.close()


Attack = Callable[[int, random.Random, Report], Coroutine[None, None, None]]
ATTACKS: dict[Attack, int] = {  # and how many at once
    random_bytes: 8,
    broken_requests: 8,
    lying_lengths: 8,
    broken_chunks: 8,
    pipelined_garbage: 4,
    huge_headers: 4,
    huge_bodies: 2,
    deep_json: 2,
    half_open: 20,
    readers_that_do_not_read: 2,
}


async def gaps_ms(server: Server, num_tokens: int) -> list[float]:
    """Between the events of one stream."""
    async with Exchange(server.port) as exchange:
        await exchange.send(_PATH, {**_STREAM, "max_tokens": num_tokens})
        assert await exchange.read_head() == 200
        came = [time.monotonic() async for _ in exchange.events()]
    # The last two are the finish and [DONE], which come together.
    return [(b - a) * 1e3 for a, b in itertools.pairwise(came[:-1])]


async def attacked(
    server: Server, attack: Attack, at_once: int, num_tokens: int, rng: random.Random
) -> tuple[list[float], Report]:
    report = Report()

    async def go_on() -> None:
        while True:
            await attack(server.port, rng, report)
            # The attackers' own work is not to be what slows the stream down: two cores are few.
            await asyncio.sleep(0.05)

    tasks = [asyncio.create_task(go_on()) for _ in range(at_once)]
    gaps = await gaps_ms(server, num_tokens)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return gaps, report


async def idle_connections(server: Server, count: int, num_tokens: int) -> list[float]:
    connections = await asyncio.gather(
        *(asyncio.open_connection(HOST, server.port) for _ in range(count))
    )
    gaps = await gaps_ms(server, num_tokens)
    for _, writer in connections:
        writer.close()
    return gaps


@dataclass
class Verdict:
    """Prints a row per attack; `is_ok` in the end."""

    most: float
    quiet_ms: float
    is_ok: bool = True

    def row(self, name: str, gaps: list[float], said: object, num_faults: int = 0) -> None:
        p99 = percentile_99(gaps)
        is_fine = p99 <= self.most * self.quiet_ms + _SLACK_MS and not num_faults
        self.is_ok = self.is_ok and is_fine
        print(
            f"{name:28s} p50 {statistics.median(gaps):6.1f}  p99 {p99:6.1f} ms  "
            f"{'ok    ' if is_fine else 'FAILED'} {said}",
            flush=True,
        )


def percentile_99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(len(values) * 0.99))]


async def run(args: argparse.Namespace, server: Server) -> bool:
    rng = random.Random(args.seed)
    await gaps_ms(server, 20)
    files = num_open_files(server.process.pid)
    quiet = await gaps_ms(server, args.tokens * 2)
    verdict = Verdict(args.most, percentile_99(quiet))
    verdict.row("quiet", quiet, "")
    for attack, at_once in ATTACKS.items():
        gaps, report = await attacked(server, attack, at_once, args.tokens, rng)
        verdict.row(attack.__name__, gaps, report.statuses, report.num_faults)
    gaps = await idle_connections(server, 1000, args.tokens)
    verdict.row("a thousand idle connections", gaps, "")
    await asyncio.sleep(2)
    verdict.row("quiet again", await gaps_ms(server, args.tokens), "")
    return verdict.is_ok and await _is_clean(server, files)


async def _is_clean(server: Server, files: int) -> bool:
    health = await health_status(server.port)
    held = await asyncio.to_thread(server.metric, "headway:blocks", state="held")
    more = num_open_files(server.process.pid) - files
    memory = resident_bytes(server.process.pid) >> 20
    print(f"/health {health}, held blocks {held:.0f}, open files {more:+d}, {memory} MiB resident")
    log = server.log.read_text(errors="replace")
    if "Traceback" in log:
        print(f"a traceback in the log: {log[log.index('Traceback') :][:3000]}")
    return health == 200 and not held and more <= 2 and "Traceback" not in log


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=100, help="of the stream beside each attack")
    parser.add_argument("--most", type=float, default=3.0, help="times the quiet 99th percentile")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("flags", nargs="*", help="flags of headway serve, after --")
    args = parser.parse_args()
    with running(args.flags) as server:
        return 0 if asyncio.run(run(args, server)) else 1


if __name__ == "__main__":
    sys.exit(main())
