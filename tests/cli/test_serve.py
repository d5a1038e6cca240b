"""The life of a server process: start, ten streams, a signal, and nothing left behind."""

from __future__ import annotations

import io
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from headway.cli import chat
from headway.cli.listening import listening
from headway.server.config import ServerConfig

SCRIPT = [sys.executable, "-m", "tests.cli.serve_fake"]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def running(
    log: Path, *flags: str, shutdown_timeout: int = 10
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    port = free_port()
    words = [*SCRIPT, str(port), str(log), str(shutdown_timeout), *flags]
    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    url = f"http://127.0.0.1:{port}"
    try:
        wait_until_healthy(url, process)
        yield url, process
    finally:
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
    with running(tmp_path / "log", "--delay", "0.05", shutdown_timeout=1) as (url, process):
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


def test_a_killed_server_leaves_no_engine(tmp_path: Path) -> None:
    with running(tmp_path / "log") as (_, process):
        process.kill()
        # The engine holds the other end of this pipe: the end of file is its own end.
        process.communicate(timeout=10)


def test_accepted_connections_send_small_answers_at_once() -> None:
    """asyncio sets TCP_NODELAY only where the socket names its protocol."""
    with listening(ServerConfig(host="127.0.0.1", port=0)) as listener:
        assert listener.proto == socket.IPPROTO_TCP


def test_port_in_use_is_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        words = [*SCRIPT, str(taken.getsockname()[1]), str(tmp_path / "log"), "10"]
        ended = subprocess.run(words, capture_output=True, text=True, timeout=20)
    assert ended.returncode == 1
    assert ended.stderr.startswith("headway serve: cannot listen on 127.0.0.1:")
    assert ended.stderr.count("\n") == 1


def test_engine_that_cannot_start_is_one_sentence(tmp_path: Path) -> None:
    words = [*SCRIPT, str(free_port()), str(tmp_path / "log"), "10", "--fail", "no such model"]
    ended = subprocess.run(words, capture_output=True, text=True, timeout=20)
    assert (ended.returncode, ended.stderr) == (1, "headway serve: no such model\n")


def test_chat_with_a_running_server_through_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(tmp_path / "log") as (url, _):
        monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n\n/clear\ngrüß dich\n/exit\nnever\n"))
        assert chat.main(["--url", url, "--temperature", "0"]) == 0
        assert capsys.readouterr().out == "hello\ngrüß dich\n"
        monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n"))
        assert chat.main(["--url", url, "--model", "other"]) == 1
        assert "does not exist here" in capsys.readouterr().err


def test_chat_says_when_nobody_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n"))
    assert chat.main(["--url", f"http://127.0.0.1:{free_port()}"]) == 1
    assert "no answer from" in capsys.readouterr().err


def test_ctrl_c_stops_the_answer_and_not_the_chat(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    heard: list[list[dict[str, str]]] = []
    closed = threading.Event()

    def answer(messages: list[dict[str, str]]) -> Iterator[str]:
        heard.append([dict(message) for message in messages])
        try:
            yield "half"
            raise KeyboardInterrupt
        finally:
            closed.set()

    monkeypatch.setattr(sys, "stdin", io.StringIO("one\ntwo\n"))
    assert chat.converse(answer, "be brief") == 0
    assert capsys.readouterr().out == "half [stopped]\n" * 2
    assert closed.is_set()
    assert [message["content"] for message in heard[1]] == ["be brief", "one", "half", "two"]
