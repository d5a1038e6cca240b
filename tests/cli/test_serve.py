"""The start of a server process, what keeps it from starting, and `headway chat` beside it."""

from __future__ import annotations

import io
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.cli import chat
from headway.cli.listening import listening
from headway.server.config import ServerConfig
from tests.cli.live_process import command, free_port, running


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
        words = command(tmp_path / "log", ["--port", str(taken.getsockname()[1])])
        ended = subprocess.run(words, capture_output=True, text=True, timeout=20)
    assert ended.returncode == 2
    assert ended.stderr.startswith("headway serve: cannot listen on 127.0.0.1:")
    assert ended.stderr.count("\n") == 1


def test_engine_that_cannot_start_is_one_sentence(tmp_path: Path) -> None:
    port = str(free_port())
    words = command(tmp_path / "log", ["--port", port], "--fail", "no such model")
    ended = subprocess.run(words, capture_output=True, text=True, timeout=20)
    first, last = ended.stderr.splitlines()
    assert first.endswith("Loading the default model")
    assert (ended.returncode, last) == (2, "headway serve: no such model")


def test_chat_with_a_running_server_through_a_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(tmp_path / "log") as (url, _):
        monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n\n/clear\ngrüß dich\n/exit\nnever\n"))
        assert chat.main(["--url", url, "--temperature", "0"]) == 0
        assert capsys.readouterr().out == "hello\ngrüß dich\n"
        monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n"))
        assert chat.main(["--url", url, "--model", "other"]) == 2
        assert "does not exist here" in capsys.readouterr().err


def test_chat_says_when_nobody_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n"))
    assert chat.main(["--url", f"http://127.0.0.1:{free_port()}"]) == 2
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
