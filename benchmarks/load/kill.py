"""What becomes of clients, health and memory when somebody pulls a plug?

    python -m benchmarks.load.kill [SCENARIO ...]

Each scenario starts `headway serve` with the default model, breaks something, and checks what must
hold then. Prints a line per check; exits with 1 when one fails.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from benchmarks.load.exchange import BadAnswerError, Exchange
from benchmarks.load.server import HOST, Server, engine_pids, num_open_files, running
from benchmarks.load.watch import health_status

_ENDLESS = {"prompt": "Count:", "max_tokens": 4000, "ignore_eos": True, "temperature": 0}
_SHORT = {"prompt": "Count:", "max_tokens": 8, "temperature": 0}
_PATH = "/v1/completions"


class Checks:
    """Prints each check as it is made."""

    def __init__(self) -> None:
        self.num_failed = 0

    def say(self, name: str, is_ok: bool, detail: object = "") -> None:
        self.num_failed += not is_ok
        print(f"  {'ok    ' if is_ok else 'FAILED'}  {name}  {detail}", flush=True)


async def until(condition: Callable[[], bool], limit_s: float) -> float:
    """Seconds until it held; infinity when it did not within the limit."""
    began = time.monotonic()
    while time.monotonic() - began < limit_s:
        if await asyncio.to_thread(condition):
            return time.monotonic() - began
        await asyncio.sleep(0.02)
    return float("inf")


async def open_streams(server: Server, count: int, body: dict[str, Any]) -> list[Exchange]:
    """Streams of which each has brought its first event."""

    async def one() -> Exchange:
        exchange = await Exchange(server.port).__aenter__()
        await exchange.send(_PATH, {**body, "stream": True})
        await exchange.read_head()
        await anext(exchange.events())
        return exchange

    return list(await asyncio.gather(*(one() for _ in range(count))))


async def last_event(exchange: Exchange) -> tuple[bytes, float]:
    """The last event before [DONE], and when it came."""
    last, at = b"", 0.0
    with contextlib.suppress(BadAnswerError, ConnectionError):
        async for event in exchange.events():
            if event != b"[DONE]":
                last, at = event, time.monotonic()
    exchange.close()
    return last, at


async def complete(server: Server) -> tuple[int, dict[str, str], Any]:
    async with Exchange(server.port) as exchange:
        await exchange.send(_PATH, _SHORT)
        await exchange.read_head()
        return exchange.status, exchange.headers, json.loads(await exchange.body())


def socket_folder(engine: int) -> Path:
    """The temporary folder through which the two processes talk."""
    words = Path(f"/proc/{engine}/cmdline").read_bytes().decode().split("\0")
    return Path(words[words.index("--to-engine") + 1].removeprefix("ipc://")).parent


def check_gone(checks: Checks, folder: Path) -> None:
    checks.say("no temporary folder is left", not folder.exists(), folder)


async def engine_killed(checks: Checks) -> None:
    """kill -9 of the engine in the middle of 100 streams."""
    with running() as server:
        _, _, answer = await complete(server)
        files = num_open_files(server.process.pid)
        streams = await open_streams(server, 100, _ENDLESS)
        dead = server.engine_pid
        folder = socket_folder(dead)
        killed = time.monotonic()
        os.kill(dead, signal.SIGKILL)
        ends = await asyncio.gather(*(last_event(stream) for stream in streams))
        errors = [json.loads(event).get("error") for event, _ in ends]
        checks.say("each stream ends with an error event", all(errors), errors[0])
        checks.say("within 2 s", (late := max(at for _, at in ends) - killed) <= 2, f"{late:.2f} s")
        status, said = await asyncio.to_thread(server.health)
        checks.say("/health is 503 and says why", status == 503, said[:200])
        status, headers, refused = await complete(server)
        checks.say("new requests get 503 with Retry-After", status == 503, refused)
        checks.say(
            "Retry-After is whole seconds", headers.get("retry-after", "").isdigit(), headers
        )
        back_s = await until(lambda: server.health()[0] == 200, 20)
        checks.say("back within 10 s", time.monotonic() - killed <= 10, f"waited {back_s:.1f} s")
        if back_s < 20:
            checks.say(
                "the same answer as before",
                (await complete(server))[2]["choices"] == answer["choices"],
            )
            checks.say("one engine", len(engine_pids(server.process.pid)) == 1)
            grown = num_open_files(server.process.pid) - files
            checks.say("no more open files", grown <= 0, grown)
            check_gone(checks, folder)


async def engine_stopped(checks: Checks) -> None:
    """SIGSTOP of the engine, then SIGCONT."""
    with running() as server:
        streams = await open_streams(server, 3, {**_SHORT, "max_tokens": 200, "ignore_eos": True})
        engine = server.engine_pid
        os.kill(engine, signal.SIGSTOP)
        took_s = await until(lambda: server.health()[0] == 503, 40)
        checks.say(
            "/health turns 503", took_s < 15, f"after {took_s:.1f} s: {server.health()[1][:200]!r}"
        )
        os.kill(engine, signal.SIGCONT)
        took_s = await until(lambda: server.health()[0] == 200, 10)
        checks.say("/health is 200 again", took_s < 3, f"after {took_s:.1f} s")
        ends = await asyncio.gather(*(last_event(stream) for stream in streams))
        reasons = [json.loads(event)["choices"][0]["finish_reason"] for event, _ in ends]
        checks.say("the streams go on to their end", reasons == ["length"] * 3, reasons)


async def api_killed(checks: Checks) -> None:
    """kill -9 of the API process: the engine must not live on."""
    with running() as server:
        await open_streams(server, 3, _ENDLESS)
        engine = server.engine_pid
        folder = socket_folder(engine)
        server.process.kill()
        server.process.wait()
        took_s = await until(lambda: not Path(f"/proc/{engine}").exists(), 10)
        checks.say("the engine exits", took_s < 10, f"after {took_s:.1f} s")
        check_gone(checks, folder)


async def told_to_stop(checks: Checks) -> None:
    """SIGTERM with three streams."""
    with running() as server:
        streams = await open_streams(server, 3, {**_ENDLESS, "max_tokens": 100})
        engine = server.engine_pid
        folder = socket_folder(engine)
        server.process.terminate()
        await asyncio.sleep(0.3)
        try:
            status, headers, body = await complete(server)
            checks.say("new requests get 503", status == 503, body)
            checks.say("with Retry-After", "retry-after" in headers, headers)
            status, said = await asyncio.to_thread(server.health)
            checks.say("/health is 503 and says draining", status == 503, said[:200])
        except OSError as error:
            checks.say("new requests get 503", False, repr(error))
        ends = await asyncio.gather(*(last_event(stream) for stream in streams))
        reasons = [json.loads(event)["choices"][0]["finish_reason"] for event, _ in ends]
        checks.say("the streams end as they should", reasons == ["length"] * 3, reasons)
        code = await asyncio.to_thread(server.process.wait, 10)
        checks.say("exit code 0", code == 0, code)
        check_gone(checks, folder)
        checks.say("the engine is gone", not Path(f"/proc/{engine}").exists())


async def told_twice(checks: Checks) -> None:
    """A second SIGTERM stops at once."""
    with running() as server:
        streams = await open_streams(server, 3, _ENDLESS)
        engine = server.engine_pid
        folder = socket_folder(engine)
        server.process.terminate()
        await asyncio.sleep(0.5)
        server.process.terminate()
        took_s = await until(lambda: server.process.poll() is not None, 20)
        checks.say("stops at once", took_s < 2, f"after {took_s:.1f} s")
        checks.say(
            "the exit code says so", server.process.poll() is not None, server.process.poll()
        )
        took_s = await until(lambda: not Path(f"/proc/{engine}").exists(), 5)
        checks.say("the engine is gone", took_s < 5, f"after {took_s:.1f} s")
        check_gone(checks, folder)
        for stream in streams:
            stream.close()


async def clients_killed(checks: Checks) -> None:
    """kill -9 of clients: streamed, not streamed, still queued. One slot, so that one waits."""
    with running(["--max-num-seqs", "1"]) as server:
        for name, is_streamed in (("streamed", True), ("not streamed", False)):
            curl = start_curl(server, is_streamed)
            await until(lambda: server.metric("vllm:num_requests_running") == 1, 10)
            queued = start_curl(server, is_streamed)
            await until(lambda: server.metric("vllm:num_requests_waiting") == 1, 10)
            queued.kill()
            took_s = await until(lambda: server.metric("vllm:num_requests_waiting") == 0, 10)
            checks.say(f"a queued one is forgotten, {name}", took_s < 1, f"after {took_s:.2f} s")
            steps = server.metric("vllm:iteration_tokens_total_count")
            curl.kill()
            took_s = await until(lambda: server.metric("headway:blocks", state="held") == 0, 10)
            steps = server.metric("vllm:iteration_tokens_total_count") - steps
            # Two, and two more for the time that reading the counter takes before and after.
            checks.say(f"blocks are free in two steps, {name}", steps <= 4, f"{steps:.0f} steps")
            for process in (curl, queued):
                process.wait()


def start_curl(server: Server, is_streamed: bool) -> subprocess.Popen[bytes]:
    body = json.dumps({**_ENDLESS, "stream": is_streamed})
    words = ["curl", "-sN", f"http://{HOST}:{server.port}{_PATH}", "-d", body]
    words += ["-H", "content-type: application/json"]
    return subprocess.Popen(words, stdout=subprocess.DEVNULL)


async def disk_full(checks: Checks) -> None:
    """--record on a full disk stops recording, not the engine."""
    with running(["--record", "/dev/full"]) as server:
        statuses = [(await complete(server))[0] for _ in range(3)]
        await asyncio.sleep(1.5)
        statuses += [(await complete(server))[0] for _ in range(3)]
        checks.say("requests are served", statuses == [200] * 6, statuses)
        checks.say("/health is 200", await health_status(server.port) == 200)
        lines = [line for line in server.log.read_text().splitlines() if "record" in line.lower()]
        checks.say("one line of the log says so", len(lines) == 1, lines)


SCENARIOS: dict[str, Callable[[Checks], Coroutine[None, None, None]]] = {
    scenario.__name__: scenario
    for scenario in (
        engine_killed,
        engine_stopped,
        api_killed,
        told_to_stop,
        told_twice,
        clients_killed,
        disk_full,
    )
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenarios", nargs="*", metavar="SCENARIO", help=", ".join(SCENARIOS))
    args = parser.parse_args()
    checks = Checks()
    for name in args.scenarios or SCENARIOS:
        print(f"{name}: {SCENARIOS[name].__doc__}", flush=True)
        try:
            asyncio.run(SCENARIOS[name](checks))
        except (RuntimeError, OSError, BadAnswerError, KeyError) as error:
            checks.say("the scenario runs", False, f"{type(error).__name__}: {error}"[:600])
    return 1 if checks.num_failed else 0


if __name__ == "__main__":
    sys.exit(main())
