"""The client of the comparisons over HTTP: what it sends."""

from __future__ import annotations

import socket
from threading import Thread

import pytest
from benchmarks.load.receiving import receive

ANSWER = b"HTTP/1.1 200 OK\r\n\r\ndata: {}\n\ndata: [DONE]\n\n"


def answer_once(listener: socket.socket, heard: list[bytes]) -> None:
    connection, _ = listener.accept()
    with connection:
        heard.append(connection.recv(1 << 16))
        connection.sendall(ANSWER)


@pytest.mark.parametrize(("tenants", "sent"), [((), False), (("quiet",), True)])
def test_a_tenant_is_named_where_there_is_one(tenants: tuple[str, ...], sent: bool) -> None:
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Thread(target=answer_once, args=(listener, heard))
        server.start()
        (stream,) = receive(listener.getsockname()[1], "/v1/completions", [{}], tenants=tenants)
        server.join()
    assert stream.is_done
    assert (b"x-tenant-id: quiet\r\n" in heard[0]) == sent
    assert (b"x-tenant-id" in heard[0]) == sent


def answer_the_quiet(listener: socket.socket, left: list[bytes]) -> None:
    connections = [listener.accept()[0] for _ in range(2)]
    for connection in connections:
        if b"quiet" in connection.recv(1 << 16):
            connection.sendall(ANSWER)
    left.append(connections[0].recv(1))
    for connection in connections:
        connection.close()


def test_when_those_who_are_awaited_are_done_it_hangs_up_on_the_others() -> None:
    left: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = Thread(target=answer_the_quiet, args=(listener, left))
        server.start()
        streams = receive(
            listener.getsockname()[1],
            "/v1/completions",
            [{}, {}, {}],
            (0.0, 0.0, 60.0),
            ("flood", "quiet", "flood"),
            until="quiet",
        )
        server.join()
    assert [stream.is_done for stream in streams] == [False, True]
    assert left == [b""]
