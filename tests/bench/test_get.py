"""One GET to whomever: what it takes, and that nothing makes it longer or larger than allowed."""

from __future__ import annotations

import gzip
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from headway.bench.get import NoAnswerError, get
from headway.bench.server import served_model
from headway.bench.target import target_of

Talk = Callable[[socket.socket], None]
_OK = b"HTTP/1.1 200 OK\r\n"
_MIB = 1 << 20


@contextmanager
def listening(talk: Talk) -> Iterator[str]:
    """The URL of a server that says to each client what `talk` does, once its head has come."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with suppress(OSError):
            while True:
                with server.accept()[0] as client, suppress(OSError):
                    client.settimeout(5)
                    client.recv(1 << 16)
                    talk(client)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


def say(raw: bytes) -> Talk:
    return lambda client: client.sendall(raw)


def repeat(piece: bytes, first: bytes = b"", pause_s: float = 0.0) -> Talk:
    """Until the client has gone."""
    gone = threading.Event()

    def talk(client: socket.socket) -> None:
        client.sendall(first)
        while not gone.wait(pause_s):
            client.sendall(piece)

    return talk


def asked(talk: Talk, patience_s: float = 5.0) -> tuple[int, bytes]:
    with listening(talk) as url:
        return get(target_of(url), "/x", {}, most_bytes=_MIB, patience_s=patience_s)


def test_status_and_body() -> None:
    assert asked(say(_OK + b"content-length: 3\r\n\r\nabc")) == (200, b"abc")
    assert asked(say(b"HTTP/1.0 404 No\r\n\r\nabc")) == (404, b"abc")


def test_the_request_asks_for_plain_bytes_and_no_more() -> None:
    heads: list[bytes] = []

    def talk(client: socket.socket) -> None:
        client.sendall(_OK + b"content-length: 0\r\n\r\n")

    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with server.accept()[0] as client:
            heads.append(client.recv(1 << 16))
            talk(client)

    thread = threading.Thread(target=serve)
    thread.start()
    target = target_of(f"http://127.0.0.1:{server.getsockname()[1]}/base/v1")
    get(target, "/x", {"authorization": "Bearer k"}, most_bytes=1, patience_s=5.0)
    thread.join()
    server.close()
    assert heads[0].startswith(b"GET /base/x HTTP/1.1\r\n")
    for line in (b"accept-encoding: identity", b"connection: close", b"authorization: Bearer k"):
        assert b"\r\n" + line + b"\r\n" in heads[0]


def test_of_an_endless_refusal_the_beginning() -> None:
    status, body = asked(repeat(b"x" * 65_536, b"HTTP/1.1 500 No\r\n\r\n"))
    assert status == 500
    assert 0 < len(body) < _MIB


@pytest.mark.parametrize(
    ("talk", "sentence"),
    [
        (repeat(b"x: y\r\n", _OK, 0.05), "did not end within 0.5 s"),
        (repeat(b" ", _OK + b"\r\n", 0.05), "did not end within 0.5 s"),
        (repeat(b"HTTP/1.1 100 Continue\r\n\r\n", b"", 0.05), "did not end within 0.5 s"),
        (repeat(b"HTTP/1.1 102 Still\r\n\r\n" * 3000), "did not end within 0.5 s"),
    ],
    ids=["head", "body", "interim answers", "a burst of them"],
)
def test_a_little_now_and_then_does_not_make_it_longer(talk: Talk, sentence: str) -> None:
    with pytest.raises(NoAnswerError, match=sentence):
        asked(talk, patience_s=0.5)


@pytest.mark.parametrize(
    ("talk", "sentence"),
    [
        (repeat(b"x" * 65_536, _OK + b"\r\n"), "larger than 1 MiB"),
        (repeat(b"x" * 65_536, _OK), "head does not end"),
        (say(b""), "closed before an answer"),
        (say(_OK + b"content-length: 9\r\n\r\nabc"), "closed in the middle"),
        (say(b"SSH-2.0-OpenSSH\r\n"), "not HTTP"),
        (say(b"\x1b[2J\x07\r\n"), r"not HTTP: '\\x1b\[2J"),
        (
            say(_OK + b"content-encoding: gzip\r\n\r\n" + gzip.compress(b"0" * _MIB)),
            "compressed",
        ),
    ],
    ids=["body", "head", "nothing", "cut", "ssh", "escapes", "compressed"],
)
def test_what_is_no_answer(talk: Talk, sentence: str) -> None:
    with pytest.raises(NoAnswerError, match=sentence) as error:
        asked(talk)
    assert str(error.value).isprintable()


@pytest.mark.parametrize("header", ["a\r\nb: c", "schlüssel", "\x00"])
def test_a_key_that_no_header_can_hold(header: str) -> None:
    with pytest.raises(NoAnswerError, match="cannot be sent"):
        get(target_of("http://127.0.0.1:1"), "/", {"x": header}, most_bytes=1, patience_s=1.0)


@pytest.mark.parametrize("name", ["m\\u001b[2J", "a\\u202eb", "x\\nSet: y", "m" * 2000])
def test_a_model_of_no_usable_name(name: str) -> None:
    body = b'{"data": [{"id": "%s"}]}' % name.encode()
    with (
        listening(say(_OK + b"\r\n" + body)) as url,
        pytest.raises(ValueError, match="give --model") as error,
    ):
        served_model(target_of(url), {})
    assert str(error.value).isprintable()
