"""A client that goes away, at any moment and in any way, costs the engine nothing more."""

from __future__ import annotations

import json
import socket

import httpx
import pytest

from tests.server.bench import LiveServer


def send(server: LiveServer, body: dict, path: str = "/v1/completions") -> socket.socket:
    raw = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(raw)}\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", server.port), timeout=5)
    connection.sendall(head.encode() + raw)
    return connection


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_hanging_up_withdraws(slow_server: LiveServer, path: str, stream: bool) -> None:
    body = {"prompt": "abc", "max_tokens": 1900, "stream": stream, "ignore_eos": True}
    if "chat" in path:
        body["messages"] = [{"role": "user", "content": body.pop("prompt")}]
    submitted = len(slow_server.commands("SubmitMessage"))
    withdrawn = len(slow_server.commands("WithdrawMessage"))
    connection = send(slow_server, body, path)
    slow_server.wait_for(lambda: len(slow_server.commands("SubmitMessage")) > submitted)
    if stream:
        assert b"200 OK" in connection.recv(4096)
    connection.close()
    slow_server.wait_for(lambda: len(slow_server.commands("WithdrawMessage")) > withdrawn, 2)
    mine = slow_server.commands("SubmitMessage")[-1]["id"]
    last = slow_server.commands("WithdrawMessage")[-1]
    assert (last["id"], last["reason"]) == (mine, "abort")
    slow_server.wait_for(lambda: is_idle(slow_server))


def test_half_a_request_then_nothing(slow_server: LiveServer) -> None:
    submitted = len(slow_server.commands("SubmitMessage"))
    connection = socket.create_connection(("127.0.0.1", slow_server.port), timeout=5)
    connection.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{")
    connection.close()
    assert httpx.get(slow_server.url + "/health").status_code == 200
    assert len(slow_server.commands("SubmitMessage")) == submitted


def test_garbage_on_the_wire(slow_server: LiveServer) -> None:
    with socket.create_connection(("127.0.0.1", slow_server.port), timeout=5) as connection:
        connection.sendall(b"\x16\x03\x01garbage\r\n\r\n")
        assert b"400" in connection.recv(4096)
    assert httpx.get(slow_server.url + "/health").status_code == 200


def test_finished_streams_withdraw_nothing(slow_server: LiveServer) -> None:
    withdrawn = len(slow_server.commands("WithdrawMessage"))
    body = {"prompt": "abc", "max_tokens": 3, "stream": True}
    assert httpx.post(slow_server.url + "/v1/completions", json=body).status_code == 200
    assert len(slow_server.commands("WithdrawMessage")) == withdrawn


def is_idle(server: LiveServer) -> bool:
    stats = server.client.stats
    return stats is not None and stats.num_running == 0
