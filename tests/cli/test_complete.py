"""`headway complete`, and what it shares with `headway chat`."""

from __future__ import annotations

import io
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.cli import main as cli
from headway.cli.streaming import AnswerError, _texts, for_terminal
from tests.bench.test_get import listening, say
from tests.cli.live_process import free_port, running


def test_texts_and_lines_by_a_running_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with running(tmp_path / "log") as (url, _):
        words = ["complete", "--url", url + "/v1", "--max-tokens", "5"]
        assert cli.main([*words, "--quick", "grüß dich"]) == 0
        assert capsys.readouterr().out == "grüß"[:3] + "\ufffd\n"  # five bytes, the last is half
        monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n\nworld\n"))
        assert cli.main(words) == 0
        assert capsys.readouterr().out == "hello\nworld\n"
        assert cli.main([*words, "--model", "other", "--quick", "x"]) == 2
        assert "HTTP 404: " in capsys.readouterr().err


def test_a_model_in_here(default_gguf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["complete", str(default_gguf), "--temperature", "0", "--max-tokens", "3"]
    sizes = ["--num-gpu-blocks-override", "64"]
    assert cli.main([*words, *sizes, "--quick", "The capital of France is"]) == 0
    assert capsys.readouterr().out.startswith(" Paris")


@pytest.mark.parametrize("command", ["chat", "complete"])
@pytest.mark.parametrize(
    ("flags", "code", "sentence"),
    [
        (["--url", "http://h:x"], 2, "'http://h:x' is not the URL of a server"),
        (["--url", "http://h", "--max-num-seqs", "3"], 2, "--max-num-seqs has no effect"),
        (["--port", "80"], 2, "--port is for headway serve"),
        (["--max-tokens", "-1"], 2, "max_tokens"),
        (["/nowhere"], 2, "/nowhere"),
        (["--url", f"http://127.0.0.1:{free_port()}"], 2, "no answer from http://127.0.0.1:"),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(
    command: str,
    flags: list[str],
    code: int,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n"))
    assert cli.main([command, *flags]) == code
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize("command", ["chat", "complete"])
@pytest.mark.parametrize("is_listed", [False, True])
def test_a_server_that_says_nothing_is_given_up(
    command: str,
    is_listed: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """At the start, or, where it told its models, in the middle of an answer."""
    monkeypatch.setattr("headway.bench.server._PATIENCE_S", 0.1)
    monkeypatch.setattr("headway.cli.streaming._SILENCE_S", 0.1)
    monkeypatch.setattr(sys, "stdin", io.StringIO("hello\n"))
    left = [b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"] if is_listed else []

    def talk(client: socket.socket) -> None:
        if left:
            client.sendall(left.pop())
        else:
            while client.recv(1 << 16):  # until it has gone
                pass

    with listening(talk) as url:
        assert cli.main([command, "--url", url]) == 2
    what = "nothing came for 0.1 s" if is_listed else "it did not end within 0.1 s"
    assert capsys.readouterr().err == (
        f"headway {command}: no answer from {url}: {what}; is a server there?\n"
    )


def test_a_template_is_for_chat_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["complete", "--chat-template", "{{x}}"]) == 2
    assert "--chat-template is for headway serve" in capsys.readouterr().err


@pytest.mark.parametrize(
    "stream",
    [
        b"data: [[[\n\n",
        b"data: \xff\n\n",
        b'data: {"choices": 3}\n\n',
        b'data: {"error": {"message": "gone\\u001b[2J"}}\n\n',
        b"data: " + b"[" * 100_000 + b"\n\n",
    ],
)
def test_a_broken_stream_is_one_sentence(stream: bytes) -> None:
    with pytest.raises(AnswerError) as error:
        list(_texts(iter([stream])))
    assert "\x1b" not in str(error.value)


@pytest.mark.parametrize("stream", [b"", b": ping\n\n", b'data: {"choices": [{"text": "a"}]}\n\n'])
def test_a_stream_without_its_end_is_no_whole_answer(stream: bytes) -> None:
    with pytest.raises(AnswerError, match="broke off"):
        list(_texts(iter([stream])))


@pytest.mark.parametrize(
    ("raw", "sentence"),
    [
        (b"content-type: text/html\r\n\r\n<html>", "answers with 'text/html', no events"),
        (b"\r\n{}", "answers with 'nothing', no events"),
    ],
)
def test_a_server_of_something_else(
    raw: bytes, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with listening(say(b"HTTP/1.1 200 OK\r\nconnection: close\r\n" + raw)) as url:
        assert cli.main(["complete", "--url", url, "--quick", "x"]) == 2
    told = capsys.readouterr()
    assert sentence in told.err
    assert told.out == ""


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_gets_nothing_that_it_obeys(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "a\x1b[2Jb\x07\r\n\tc\x9b31m\u202ed \u200d\xa0é"
    monkeypatch.setattr(sys.stdout, "isatty", lambda: is_terminal)
    plain = "a\\x1b[2Jb\\x07\n\tc\\x9b31m\\u202ed \u200d\xa0é"
    assert for_terminal(text) == (plain if is_terminal else text)


def test_lines_are_those_of_the_protocol() -> None:
    """Text may hold what else ends a line."""
    event = 'data: {"choices": [{"text": "a\u2028b\x85c"}]}\r\n\r\ndata: [DONE]\n\n'.encode()
    pieces: Iterator[bytes] = (event[i : i + 3] for i in range(0, len(event), 3))
    assert "".join(_texts(pieces)) == "a\u2028b\x85c"
