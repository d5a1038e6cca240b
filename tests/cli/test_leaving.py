"""How a server leaves: SIGTERM, a second one, and connections that would rather stay."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

import httpx
import pytest

from tests.cli.live_process import command, free_port, running


def test_sigterm_lets_streams_finish_and_takes_the_engine_along(tmp_path: Path) -> None:
    body = {"prompt": "abc", "max_tokens": 30, "stream": True}
    with running(tmp_path / "log", "--delay", "0.02") as (url, process):
        with httpx.stream("POST", url + "/v1/completions", json=body) as reply:
            lines = reply.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert (
            json.loads(rest[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
        )
        assert process.wait(10) == 0
        said = process.stderr.read() if process.stderr else ""
    told = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert told[-1]["kind"] == "ShutdownMessage"
    assert "KV cache size: 1,024 tokens" in said
    assert "Maximum concurrency for 2,048 tokens per request: 0.50x" in said


def test_what_outlives_the_shutdown_timeout_ends_with_an_error(tmp_path: Path) -> None:
    body = {"prompt": "abc", "max_tokens": 1000, "stream": True}
    with running(tmp_path / "log", "--delay", "0.05", server_flags=("--shutdown-timeout", "1")) as (
        url,
        process,
    ):
        with httpx.stream("POST", url + "/v1/completions", json=body) as reply:
            lines = reply.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            rest = [line for line in lines if line]
        assert "shutting down" in rest[-2]
        assert rest[-1] == "data: [DONE]"
        assert process.wait(10) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()


def test_while_it_leaves_the_door_says_so(tmp_path: Path) -> None:
    body = {"prompt": "abc", "max_tokens": 60, "stream": True, "ignore_eos": True}
    with running(tmp_path / "log", "--delay", "0.02") as (url, process):
        idle = socket.create_connection(("127.0.0.1", int(url.rsplit(":", 1)[1])))
        with httpx.Client() as kept, httpx.stream("POST", url + "/v1/completions", json=body) as r:
            assert kept.get(url + "/version").status_code == 200
            lines = r.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            wait_for(lambda: kept.get(url + "/health").status_code == 503)
            assert kept.get(url + "/health").json()["status"] == "draining"
            assert kept.get(url + "/metrics").status_code == 200
            for client in (kept, httpx):  # an old connection, and a new one
                refused = client.post(url + "/v1/completions", json=body)
                assert refused.status_code == 503
                assert refused.json()["error"]["code"] == "shutting_down"
                assert refused.headers["connection"] == "close"
                assert refused.headers["retry-after"] == "1"
            kept.get(url + "/health")  # stays open, and may not hold up the end
            assert [line for line in lines if line][-1] == "data: [DONE]"
            ended = time.monotonic()
            assert process.wait(10) == 0
            assert time.monotonic() - ended < 3
        idle.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_stops_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    own = tempfile.mkdtemp()
    monkeypatch.setenv("TMPDIR", own)
    body = {"prompt": "abc", "max_tokens": 1900, "stream": True, "ignore_eos": True}
    with running(tmp_path / "log", "--delay", "0.05") as (url, process):
        with httpx.stream("POST", url + "/v1/completions", json=body) as answer:
            lines = answer.iter_lines()
            next(lines)
            process.send_signal(signal.SIGTERM)
            wait_for(lambda: httpx.get(url + "/health").status_code == 503)
            began = time.monotonic()
            process.send_signal(number)
            assert process.wait(5) == 128 + number
            assert time.monotonic() - began < 1
        # The engine held the other end of this pipe.
        assert process.stderr is not None
        assert "Stopped at once by a second signal" in process.stderr.read()
        os.rmdir(own)  # nothing is left in it


def test_a_signal_while_the_engine_loads(tmp_path: Path) -> None:
    words = command(tmp_path / "log", ["--port", str(free_port())], "--load", "60")
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    wait_for(lambda: children.read_text().strip(), 20)
    time.sleep(0.3)  # the loop takes the signals over a moment after it started the engine
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=4)
    assert process.returncode == 1
    assert said.splitlines()[-1] == "headway serve: stopped before the engine was ready"


def test_restarted_engine_and_then_an_end_in_order(tmp_path: Path) -> None:
    with running(tmp_path / "log", "--die-after", "5") as (url, process):
        answer = httpx.post(url + "/v1/completions", json={"prompt": "abc", "max_tokens": 50})
        assert answer.status_code == 503
        wait_for(lambda: httpx.get(url + "/health").status_code == 200)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert process.stderr is not None
        said = process.stderr.read()
    assert "The engine died: the engine process exited with code 3; restarting in 1 s" in said
    assert "The engine runs again" in said


def wait_for(holds, timeout_s: float = 5.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not holds():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)
