"""Clients that are slow, huge, many or no HTTP clients at all cost the others nothing."""

from __future__ import annotations

import itertools
import json
import random
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.server.bench import LiveServer, live_server
from tests.server.test_disconnects import is_idle, send

LONG = {"prompt": "abc", "max_tokens": 1900, "stream": True, "ignore_eos": True}


@pytest.fixture(scope="module")
def strict_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Half a second for a request, or for a reader that reads nothing."""
    directory = tmp_path_factory.mktemp("strict")
    limits = {"read_timeout_s": 0.5, "write_timeout_s": 0.5, "max_body_bytes": 100_000}
    with live_server(directory, "--delay", "0.005", **limits) as live:
        yield live


def connect(server: LiveServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), timeout=5)


def read_all(connection: socket.socket) -> bytes:
    pieces = []
    while piece := connection.recv(65536):
        pieces.append(piece)
    return b"".join(pieces)


def error_of(answer: bytes) -> tuple[int, dict]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)["error"]


HEAD = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.parametrize(
    "beginning",
    [b"POST /v1/comp", HEAD, HEAD + b"Content-Length: 5000\r\n\r\n{", HEAD + b"X: y\r\n"],
)
def test_a_request_that_trickles_is_cut(strict_server: LiveServer, beginning: bytes) -> None:
    began = time.monotonic()
    with connect(strict_server) as connection:
        connection.sendall(beginning)
        while time.monotonic() - began < 0.4:
            time.sleep(0.05)
            connection.sendall(b"a")
        status, error = error_of(read_all(connection))
    assert (status, error["code"]) == (408, "request_timeout")
    assert 0.4 < time.monotonic() - began < 2


def test_a_connection_that_says_nothing_is_closed(strict_server: LiveServer) -> None:
    with connect(strict_server) as connection:
        assert connection.recv(10) == b""


def test_a_second_request_that_trickles_is_cut_too(strict_server: LiveServer) -> None:
    with connect(strict_server) as connection:
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
        assert b"200 OK" in connection.recv(4096)
        connection.sendall(b"GET /hea")
        assert error_of(read_all(connection))[0] == 408


def test_an_answer_may_take_longer_than_a_request(strict_server: LiveServer) -> None:
    body = {"prompt": "abc", "max_tokens": 200, "ignore_eos": True}
    assert httpx.post(strict_server.url + "/v1/completions", json=body).status_code == 200


def test_a_reader_that_does_not_read_is_cut_and_withdrawn(strict_server: LiveServer) -> None:
    withdrawn = len(strict_server.commands("WithdrawMessage"))
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.connect(("127.0.0.1", strict_server.port))
    raw = json.dumps({**LONG, "logprobs": 20, "n": 8}).encode()
    head = HEAD + b"Content-Length: %d\r\n\r\n" % len(raw)
    connection.sendall(head + raw)
    strict_server.wait_for(lambda: len(strict_server.commands("WithdrawMessage")) > withdrawn, 15)
    strict_server.wait_for(lambda: is_idle(strict_server))
    connection.close()


def test_bodies_that_say_that_they_are_too_long_are_refused_unread(
    strict_server: LiveServer,
) -> None:
    with connect(strict_server) as connection:
        connection.sendall(HEAD + b"Content-Length: 99999999999\r\n\r\n")
        status, error = error_of(read_all(connection))
    assert (status, error["code"]) == (413, "body_too_large")
    assert "100,000 are allowed" in error["message"]


def test_bodies_that_do_not_say_so_are_refused_too(strict_server: LiveServer) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(200):
            yield b" " * 1000

    answer = httpx.post(strict_server.url + "/v1/completions", content=pieces())
    assert answer.status_code == 413


def test_headers_that_are_too_long(strict_server: LiveServer) -> None:
    with connect(strict_server) as connection:
        connection.sendall(HEAD + b"X: " + b"y" * 70_000)
        status, error = error_of(connection.recv(4096))
    assert (status, error["code"]) == (431, "headers_too_large")


def test_what_is_no_http_gets_the_error_shape(strict_server: LiveServer) -> None:
    with connect(strict_server) as connection:
        connection.sendall(b"\x16\x03\x01garbage\r\n\r\n")
        status, error = error_of(connection.recv(4096))
    assert (status, error["code"]) == (400, "invalid_http")


def test_no_more_connections_than_allowed(tmp_path: Path) -> None:
    with live_server(tmp_path, max_connections=5) as live:
        held = [connect(live) for _ in range(5)]
        time.sleep(0.1)
        with connect(live) as one_more:
            status, error = error_of(read_all(one_more))
        assert (status, error["code"]) == (503, "too_many_connections")
        for connection in held:
            connection.close()
        live.wait_for(lambda: httpx.get(live.url + "/health").status_code == 200)


def test_websockets_are_not_there(strict_server: LiveServer) -> None:
    with connect(strict_server) as connection:
        connection.sendall(
            b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
        )
        assert b"200 OK" in connection.recv(4096)


def rude(server: LiveServer, rng: random.Random) -> None:
    """One connection of somebody who means no good."""
    connection = connect(server)
    body = json.dumps({**LONG, "stream": rng.random() < 0.5}).encode()
    request = HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body
    kind = rng.randrange(5)
    if kind == 0:
        request = rng.randbytes(rng.randrange(1, 2000))
    elif kind == 1:
        request = request[: rng.randrange(len(request))]
    elif kind == 2:
        request = bytes(b ^ (rng.random() < 0.02) for b in request)
    elif kind == 3:
        request = HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + rng.randbytes(50)
    try:
        connection.sendall(request)
        if rng.random() < 0.3:
            connection.shutdown(socket.SHUT_WR)
        if rng.random() < 0.5:
            connection.settimeout(0.05)
            connection.recv(4096)
    except OSError:
        pass
    connection.close()


def test_a_fuzzer_beside_a_stream(strict_server: LiveServer) -> None:
    """The stream keeps its pace among two hundred idle connections and a rude client's."""
    idle = [connect(strict_server) for _ in range(200)]
    rng = random.Random(0)
    over = threading.Event()

    def fuzz() -> None:
        while not over.is_set():
            rude(strict_server, rng)

    arrivals = []
    body = {**LONG, "max_tokens": 300}
    fuzzer = threading.Thread(target=fuzz)
    with httpx.stream("POST", strict_server.url + "/v1/completions", json=body) as answer:
        for _ in answer.iter_lines():
            arrivals.append(time.monotonic())
            if len(arrivals) == 5:
                fuzzer.start()
    over.set()
    fuzzer.join()
    gaps = [b - a for a, b in itertools.pairwise(arrivals)]
    assert len(arrivals) >= 300
    assert max(gaps) < 0.5
    assert httpx.get(strict_server.url + "/health").status_code == 200
    strict_server.wait_for(lambda: is_idle(strict_server))
    for connection in idle:
        connection.close()


def test_half_closed_clients_are_gone_clients(strict_server: LiveServer) -> None:
    connection = send(strict_server, LONG)
    assert b"200 OK" in connection.recv(4096)
    connection.shutdown(socket.SHUT_WR)
    strict_server.wait_for(lambda: is_idle(strict_server))
    connection.close()
