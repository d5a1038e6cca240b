"""One GET over a connection of its own, bounded in time and size whatever the server sends."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping

from headway.bench.http1 import AnswerReader, BadAnswerError, printable
from headway.bench.requests import http_request
from headway.bench.target import Target

_MOST_REFUSAL_BYTES = 1 << 16
_MOST_SHOWN = 200  # characters of what is wrong
_PIECE_BYTES = 1 << 16


class NoAnswerError(Exception):
    """Nobody answers in HTTP, or without end; the message is a clause."""


def no_answer(url: str, reason: object) -> str:
    """The sentence that every command has for it."""
    return f"no answer from {url}: {reason}; is a server there?"


def get(
    target: Target, path: str, headers: Mapping[str, str], *, most_bytes: int, patience_s: float
) -> tuple[int, bytes]:
    """Status and body; of a refusal's body the beginning. Raises NoAnswerError.

    `patience_s` is for all of it: one byte now and then does not make it longer.
    """
    until_s = time.monotonic() + patience_s
    identity = {"accept-encoding": "identity", "connection": "close"}
    try:
        request = http_request(target, "GET", path, {**identity, **headers})
        with _connected(target, patience_s) as connection:
            connection.sendall(request)
            return _read(connection, most_bytes, until_s)
    except TimeoutError:
        raise NoAnswerError(f"it did not end within {patience_s:g} s") from None
    except (OSError, BadAnswerError, ValueError) as error:  # a UnicodeError is a ValueError
        raise NoAnswerError(_sentence(error)) from None


def _connected(target: Target, patience_s: float) -> socket.socket:
    connection = socket.create_connection((target.host, target.port), patience_s)
    if target.tls is None:
        return connection
    return target.tls.wrap_socket(connection, server_hostname=target.host)


def _read(connection: socket.socket, most_bytes: int, until_s: float) -> tuple[int, bytes]:
    answer, body = AnswerReader(), bytearray()
    while not answer.is_whole:
        connection.settimeout(max(1e-3, until_s - time.monotonic()))
        data = connection.recv(_PIECE_BYTES)
        if time.monotonic() > until_s:
            raise TimeoutError
        body += answer.feed(data)
        if not data:
            answer.end()
        if answer.status != 200 and len(body) > _MOST_REFUSAL_BYTES:
            break
        if len(body) > most_bytes:
            raise BadAnswerError(f"it is larger than {most_bytes >> 20} MiB")
    encoding = answer.headers.get("content-encoding", "identity")
    if answer.status == 200 and encoding.lower() != "identity":
        raise BadAnswerError(f"it is compressed ({encoding}), which was not asked for")
    return answer.status, bytes(body)


def _sentence(error: Exception) -> str:
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return printable(" ".join(said.split()))[:_MOST_SHOWN] or type(error).__name__
