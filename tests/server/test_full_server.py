"""A server that is full says so at once, says when to come again, and empties (P34 to P37)."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from pathlib import Path

import httpx
import pytest

from tests.server.bench import LiveServer, live_server
from tests.server.test_disconnects import is_idle, send

LONG = {"prompt": "abc", "max_tokens": 100, "ignore_eos": True}


async def all_at_once(live: LiveServer, count: int, **fields: object) -> list[tuple[int, float]]:
    """Status and seconds of so many requests together."""

    async def one(http: httpx.AsyncClient) -> tuple[int, float]:
        began = time.monotonic()
        answer = await http.post(live.url + "/v1/completions", json={**LONG, **fields})
        if answer.status_code != 200:
            assert 1 <= int(answer.headers["retry-after"]) <= 60
            assert answer.json()["error"]["code"] == "queue_full"
        return answer.status_code, time.monotonic() - began

    async with httpx.AsyncClient(timeout=30) as http:
        await http.get(live.url + "/version")
        return await asyncio.gather(*(one(http) for _ in range(count)))


@pytest.mark.parametrize("status", [429, 503])
def test_ten_at_once_and_room_for_four(tmp_path: Path, status: int) -> None:
    settings = {"max_num_queued_reqs": 4, "queue_full_status": status}
    with live_server(tmp_path, "--delay", "0.01", **settings) as live:
        ends = asyncio.run(all_at_once(live, 10))
        assert sorted(code for code, _ in ends) == [200] * 4 + [status] * 6
        assert max(seconds for code, seconds in ends if code == status) < 0.5
        again = asyncio.run(all_at_once(live, 4))
        assert [code for code, _ in again] == [200] * 4


def test_choices_and_prompts_of_a_body_come_in_together_or_not_at_all(tmp_path: Path) -> None:
    with live_server(tmp_path, "--delay", "0.01", max_num_queued_reqs=4) as live:
        held = send(live, {**LONG, "stream": True, "n": 2, "max_tokens": 1900})
        live.wait_for(lambda: len(live.commands("SubmitMessage")) == 1)
        body = {**LONG, "prompt": ["a", "b", "c"]}
        assert httpx.post(live.url + "/v1/completions", json=body).status_code == 503
        assert len(live.commands("SubmitMessage")) == 1
        fits = httpx.post(live.url + "/v1/completions", json={**body, "prompt": ["a", "b"]})
        assert fits.status_code == 200
        held.close()
        live.wait_for(lambda: is_idle(live))
        assert httpx.post(live.url + "/v1/completions", json=body).status_code == 200


def test_backlog_of_prompts(tmp_path: Path) -> None:
    with live_server(tmp_path, "--backlog", "500", max_num_queued_tokens=500) as live:
        assert httpx.post(live.url + "/v1/completions", json=LONG).status_code == 200
        refused = httpx.post(live.url + "/v1/completions", json=LONG)
        assert refused.status_code == 503
        message = refused.json()["error"]["message"]
        assert "500 prompt tokens wait to be computed and the limit is 500" in message
        assert "3 prompt tokens done in the last" in message
        assert int(refused.headers["retry-after"]) >= 1
    with live_server(tmp_path, "--backlog", "499", max_num_queued_tokens=500) as live:
        for _ in range(3):
            assert httpx.post(live.url + "/v1/completions", json=LONG).status_code == 200


def test_a_retried_id_never_runs_twice(tmp_path: Path) -> None:
    headers = {"x-request-id": "same"}
    with live_server(tmp_path, "--delay", "0.02") as live:
        url = live.url + "/v1/completions"
        with httpx.stream("POST", url, json={**LONG, "stream": True}, headers=headers) as first:
            assert first.status_code == 200
            second = httpx.post(url, json=LONG, headers=headers)
            assert second.status_code == 409
            assert second.json()["error"]["code"] == "request_id_in_use"
        live.wait_for(lambda: is_idle(live))
        third = httpx.post(url, json={**LONG, "max_tokens": 3}, headers=headers)
        assert third.status_code == 200
        assert len(live.commands("SubmitMessage")) == 2


def test_every_refusal_is_counted_by_its_cause(tmp_path: Path) -> None:
    with live_server(tmp_path, "--backlog", "9", max_num_queued_tokens=9) as live:
        for status in (200, 503):
            answer = httpx.post(live.url + "/v1/completions", json={**LONG, "max_tokens": 3})
            assert answer.status_code == status
        assert rejections(live, "queue_tokens") == 1
    with live_server(tmp_path, "--delay", "0.02", max_num_queued_reqs=8, restart_limit=0) as live:
        url = live.url + "/v1/completions"
        held = send(live, {**LONG, "stream": True, "max_tokens": 1900, "request_id": "held"})
        assert b"200 OK" in held.recv(4096)
        assert httpx.post(url, json={**LONG, "n": 8}).status_code == 503
        prompts = [{"prompt": "abc", "request_id": "held"}, {"prompt": "x" * 1100}]
        assert [httpx.post(url, json={**LONG, **p}).status_code for p in prompts] == [409, 400]
        os.kill(live.client.engine_pid, signal.SIGKILL)
        live.wait_for(lambda: httpx.get(live.url + "/health").status_code == 503)
        assert httpx.post(url, json=LONG).json()["error"]["code"] == "engine_unavailable"
        live.client.drain()
        assert httpx.post(url, json=LONG).json()["error"]["code"] == "shutting_down"
        causes = ("queue_reqs", "id_in_use", "never_fits", "engine_dead", "draining")
        assert [rejections(live, cause) for cause in causes] == [1] * 5
        assert rejections(live, "queue_tokens") == 0
        held.close()


def rejections(live: LiveServer, cause: str) -> float:
    lines = httpx.get(live.url + "/metrics").text.splitlines()
    name = "vllm:admission_rejections_total{"
    (line,) = (x for x in lines if x.startswith(name) and f'reason="{cause}"' in x)
    return float(line.rsplit(" ", 1)[1])
