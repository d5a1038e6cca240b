"""What clients and /health see of an engine that dies, hangs or never starts."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import openai
import pytest

from headway.server import engine_link
from headway.server.engine_client import EngineClient, EngineStartError
from tests.server import fake_engine
from tests.server.bench import live_server

BODY = {"prompt": "abc", "max_tokens": 500}


def test_death_in_the_middle_ends_a_plain_request(tmp_path: Path) -> None:
    with live_server(tmp_path, "--die-after", "5", "--delay", "0.01") as live:
        answer = httpx.post(live.url + "/v1/completions", json=BODY)
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "engine_unavailable"
        assert "exited with code 3" in answer.json()["error"]["message"]
        health = httpx.get(live.url + "/health")
        assert health.status_code == 503
        assert "exited with code 3" in health.json()["status"]
        again = httpx.post(live.url + "/v1/completions", json=BODY)
        assert again.status_code == 503


def test_death_in_the_middle_ends_a_stream_with_an_error(tmp_path: Path) -> None:
    with live_server(tmp_path, "--die-after", "5", "--delay", "0.01") as live:
        client = openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0)
        stream = client.completions.create(model="echo", prompt="abc", max_tokens=500, stream=True)
        pieces = []
        with pytest.raises(openai.APIError, match="exited with code 3"):
            pieces += [chunk.choices[0].text for chunk in stream]
        raw = httpx.get(live.url + "/health")
        assert raw.status_code == 503


def test_killed_engine_is_named(tmp_path: Path) -> None:
    with live_server(tmp_path) as live:
        assert httpx.get(live.url + "/health").status_code == 200
        os.kill(live.client.engine_pid, signal.SIGKILL)
        live.wait_for(lambda: httpx.get(live.url + "/health").status_code == 503)
        assert "signal 9" in httpx.get(live.url + "/health").json()["status"]


def test_engine_is_gone_when_the_server_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_link, "_POLITE_S", 0.1)
    with live_server(tmp_path, "--hang-after", "0") as live:
        link = live.client._supervisor.link
        process = link.process
        with pytest.raises(httpx.ReadTimeout):
            httpx.post(live.url + "/v1/completions", json=BODY, timeout=0.3)
        os.kill(process.pid, 0)
        directory = Path(link.directory)
        assert directory.stat().st_mode & 0o777 == 0o700
    assert process.returncode is not None
    assert not directory.exists()


@pytest.mark.parametrize(
    ("start", "sentence"),
    [
        (("--fail", "no such model: give another"), "no such model: give another"),
        (None, "exited with code 7"),
    ],
)
def test_engine_that_does_not_start(tmp_path: Path, start: tuple | None, sentence: str) -> None:
    def exit_at_once(to_engine: str, from_engine: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", "raise SystemExit(7)"])

    async def wait() -> None:
        starter = exit_at_once if start is None else fake_engine.start(tmp_path / "log", *start)
        client = EngineClient(starter)
        try:
            await client.wait_ready()
        finally:
            await client.close()

    with pytest.raises(EngineStartError, match=sentence):
        asyncio.run(wait())


def test_health_answers_at_once_under_load(tmp_path: Path) -> None:
    with live_server(tmp_path, "--delay", "0.002") as live:
        body = {"prompt": "abc", "max_tokens": 300, "n": 32}
        with httpx.stream("POST", live.url + "/v1/completions", json={**body, "stream": True}):
            for _ in range(5):
                began = time.monotonic()
                assert httpx.get(live.url + "/health").status_code == 200
                assert time.monotonic() - began < 1
