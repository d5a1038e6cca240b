"""An engine that dies is missed at once, mourned in every stream, and replaced."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.core.events import AbortCause, Aborted, Queued
from headway.core.request import Request, SamplingParams
from headway.server import engine_link, supervisor
from headway.server.engine_client import EngineClient, EngineStartError
from headway.server.subscription import EngineDeadError, Subscription
from headway.server.supervisor import Backoff
from tests.server import fake_engine
from tests.server.bench import live_server

BODY = {"prompt": "abc", "max_tokens": 1500, "stream": True, "ignore_eos": True}


def request(request_id: str, **fields: Any) -> Request:
    sampling = SamplingParams(max_tokens=1500, **fields)
    return Request(request_id=request_id, prompt_token_ids=(97, 98), sampling=sampling)


class Recorder:
    """A fold and a watcher that remember everything."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.stats: Any = None
        self.refusals: list[str] = []
        self.num_restarts = 0

    def on_submitted(self, request: Request, now_ns: int) -> None: ...

    def on_events(self, events: Any, now_ns: int) -> None:
        self.events += events

    def on_stats(self, stats: Any) -> None:
        self.stats = stats

    def on_refused(self, cause: str) -> None:
        self.refusals.append(cause)

    def on_restarted(self) -> None:
        self.num_restarts += 1


def no_start(*addresses: str) -> Any:
    raise RuntimeError("nobody expected this")


async def read_until_error(http: httpx.AsyncClient, url: str) -> tuple[int, dict[str, Any], float]:
    """Number of chunks, the error, and when it came."""
    num_chunks = 0
    async with http.stream("POST", url + "/v1/completions", json=BODY) as answer:
        async for line in answer.aiter_lines():
            if line.startswith("data: {"):
                chunk = json.loads(line[6:])
                if "error" in chunk:
                    return num_chunks, chunk["error"], time.monotonic()
                num_chunks += 1
    raise AssertionError("the stream ended without an error")


def test_killed_among_a_hundred_streams(tmp_path: Path) -> None:
    # The first second of the next start is the backoff.
    with live_server(tmp_path, "--delay", "0.02") as live:
        directory = live.client._supervisor.link.directory
        first_pid = live.client.engine_pid

        async def scene() -> None:
            limits = httpx.Limits(max_connections=200)
            async with httpx.AsyncClient(limits=limits, timeout=30) as http:
                readers = [
                    asyncio.create_task(read_until_error(http, live.url)) for _ in range(100)
                ]
                while len(live.commands("SubmitMessage")) < 100:
                    await asyncio.sleep(0.05)
                killed = time.monotonic()
                os.kill(first_pid, signal.SIGKILL)
                ends = await asyncio.gather(*readers)
                assert max(when for _, _, when in ends) - killed < 2
                assert {error["code"] for _, error, _ in ends} == {"engine_unavailable"}
                assert all("killed by signal 9" in error["message"] for _, error, _ in ends)
                health = await http.get(live.url + "/health")
                assert health.status_code == 503
                assert "engine died" in health.json()["status"]
                assert "restarting" in health.json()["status"]
                refused = await http.post(live.url + "/v1/completions", json=BODY)
                assert refused.status_code == 503
                while (await http.get(live.url + "/health")).status_code != 200:
                    await asyncio.sleep(0.05)
                assert time.monotonic() - killed < 10
                again = await http.post(
                    live.url + "/v1/completions", json={"prompt": "abc", "max_tokens": 3}
                )
                assert again.json()["choices"][0]["text"] == "abc"

        asyncio.run(scene())
        assert live.client.engine_pid != first_pid
        assert not Path(directory).exists()
        assert not Path(f"/proc/{first_pid}").exists()
        metrics = httpx.get(live.url + "/metrics").text
        assert live.metric("vllm:num_requests_running", metrics) == 0
        assert live.metric("vllm:request_success_total", metrics) == 101
        assert live.metric("headway:engine_restarts_total", metrics) == 1
        assert live.metric("vllm:engine_healthy", metrics) == 1


def test_folds_hear_one_end_of_everything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene() -> None:
        recorder = Recorder()
        before = len(asyncio.all_tasks())
        client = EngineClient(fake_engine.start(tmp_path / "log", "--delay", "0.05"))
        client.add_fold(recorder)
        client.add_watcher(recorder)
        try:
            await client.wait_ready()
            known = client.submit([request("a", n=2)])
            await known.take()
            os.kill(client.engine_pid, signal.SIGKILL)
            unknown = client.submit([request("b")])  # no engine will ever read this
            for subscription in (known, unknown):
                with pytest.raises(EngineDeadError, match="killed by signal 9") as error:
                    await read_all(subscription)
                assert error.value.retry_after_s is not None
                assert 1 <= error.value.retry_after_s <= 3
            with pytest.raises(EngineDeadError):
                client.submit([request("c")])
            await until(lambda: client.health().is_ok)
            retried = client.submit([request("a")])
            assert [update.request_id for update in await retried.take()] == ["a"]
        finally:
            await client.close()
        assert recorder.refusals == ["engine_dead"]
        assert recorder.num_restarts == 1
        ends = [e for e in recorder.events if isinstance(e, Aborted)]
        assert [e.cause for e in ends[:3]] == [AbortCause.ENGINE] * 3
        begun = [e for e in recorder.events if isinstance(e, Queued)]
        assert len(begun) == len(ends) == 4
        assert recorder.stats.num_running == recorder.stats.num_held_blocks == 0
        assert len(asyncio.all_tasks()) == before

    num_files = len(list(Path("/proc/self/fd").iterdir()))
    with tempfile.TemporaryDirectory() as own:  # short: a socket's path has a limit
        monkeypatch.setattr(tempfile, "tempdir", own)
        asyncio.run(scene())
        assert not list(Path(own).iterdir())
    assert len(list(Path("/proc/self/fd").iterdir())) <= num_files


def test_an_engine_that_never_lives_long_is_given_up(tmp_path: Path) -> None:
    async def scene() -> None:
        client = EngineClient(fake_engine.start(tmp_path / "log"), restart_limit=0)
        try:
            await client.wait_ready()
            os.kill(client.engine_pid, signal.SIGKILL)
            await until(lambda: not client.health().is_ok)
            assert "deaths in a row: 1" in client.health().reason
            with pytest.raises(EngineDeadError) as error:
                client.submit([request("a")])
            assert error.value.retry_after_s is None
        finally:
            await client.close()

    asyncio.run(scene())


def test_a_restart_that_fails_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "FIRST_DELAY_S", 0.05)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    good = fake_engine.start(tmp_path / "log")
    bad = fake_engine.start(tmp_path / "log", "--fail", "the disk is gone")
    starts = iter([good, no_start, bad, good])

    async def scene() -> None:
        client = EngineClient(lambda *addresses: next(starts)(*addresses))
        try:
            await client.wait_ready()
            os.kill(client.engine_pid, signal.SIGKILL)
            await until(lambda: "nobody expected this" in client.health().reason)
            await until(lambda: "the disk is gone" in client.health().reason)
            await until(lambda: client.health().is_ok)
            assert len(list(tmp_path.glob("headway-*"))) == 1, "each life takes its sockets along"
        finally:
            await client.close()

    asyncio.run(scene())
    assert next(starts, None) is None


def test_backoff_doubles_and_forgets_after_a_minute_of_life() -> None:
    backoff = Backoff()
    assert [backoff.next_delay_s(1) for _ in range(7)] == [1, 2, 4, 8, 16, 30, 30]
    assert backoff.num_deaths == 7
    assert backoff.next_delay_s(61) == 1
    assert backoff.num_deaths == 1


def test_stopped_engine_turns_health_to_503_and_back(tmp_path: Path) -> None:
    with live_server(tmp_path, "--alive-every", "0.1", health_timeout_s=0.6) as live:
        assert httpx.get(live.url + "/health").status_code == 200
        os.kill(live.client.engine_pid, signal.SIGSTOP)
        try:
            stopped = time.monotonic()
            live.wait_for(lambda: httpx.get(live.url + "/health").status_code == 503)
            assert time.monotonic() - stopped < 1.5
            told = httpx.get(live.url + "/health").json()
            assert "nothing heard of it" in told["status"]
            assert told["last_turn_age_s"] >= 0
        finally:
            os.kill(live.client.engine_pid, signal.SIGCONT)
        live.wait_for(lambda: httpx.get(live.url + "/health").status_code == 200)


def test_a_step_that_never_ends_is_told_with_its_tokens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_link, "_POLITE_S", 0.1)
    flags = ("--alive-every", "0.1", "--hang-after", "0")
    with live_server(tmp_path, *flags, health_timeout_s=0.6) as live:
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(live.url + "/v1/completions", json={"prompt": "abc"}, timeout=0.3)
        live.wait_for(lambda: httpx.get(live.url + "/health").status_code == 503)
        assert "step 0 with 1 tokens" in httpx.get(live.url + "/health").json()["status"]


def test_first_start_that_fails_is_the_callers(tmp_path: Path) -> None:
    async def scene() -> None:
        client = EngineClient(fake_engine.start(tmp_path / "log", "--fail", "no such model"))
        try:
            await client.wait_ready()
        finally:
            await client.close()

    with pytest.raises(EngineStartError, match="no such model"):
        asyncio.run(scene())


async def read_all(subscription: Subscription) -> None:
    while True:
        await subscription.take()


async def until(holds: Any, timeout_s: float = 10.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.02)
