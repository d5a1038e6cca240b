"""Many streams in one thread, each received event with the time at which its bytes came."""

from __future__ import annotations

import collections
import json
import selectors
import socket
import struct
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.load.server import HOST

_SO_TIMESTAMPNS = 35  # from asm-generic/socket.h; Python's socket module has no name for it
_PAUSE_S = 0.004
_TIMESPEC = struct.Struct("qq")


@dataclass
class Stream:
    """What came: per event its data and CLOCK_MONOTONIC, in nanoseconds, at the socket.

    The kernel's own stamp is used, so that a client that is late to read is not counted.
    """

    events: list[tuple[bytes, int]] = field(default_factory=list)
    asked_ns: int = 0
    is_done: bool = False
    rest: bytes = b""

    def take(self, piece: bytes, at_ns: int) -> None:
        *frames, self.rest = (self.rest + piece).split(b"\n\n")
        for frame in frames:
            start = frame.find(b"data: ")
            if start >= 0:
                self.events.append((frame[start + 6 :], at_ns))
                self.is_done = self.is_done or frame.endswith(b"data: [DONE]")


def receive(
    port: int,
    path: str,
    bodies: Sequence[dict[str, Any]],
    at_s: Sequence[float] = (),
    tenants: Sequence[str] = (),
    until: str | None = None,
) -> list[Stream]:
    """Send all bodies, one connection each, and read until every stream is done.

    All at once, or each so many seconds after the call as `at_s`, which rises, says. With `until`
    only until those of that tenant are: then it hangs up on the others, and sends no more.

    Reads every few milliseconds what has come, and sleeps meanwhile: a client that each arrival
    wakes takes its core from the server in the middle of a step's tokens.

    Raises RuntimeError for a stream that breaks off.
    """
    began, times = time.monotonic(), at_s or [0.0] * len(bodies)
    whose = tenants or [""] * len(bodies)
    waiting = collections.deque(zip(bodies, times, whose, strict=True))
    streams: list[Stream] = []
    num_awaited = sum(until in (None, tenant) for tenant in whose)
    with selectors.DefaultSelector() as selector:
        while num_awaited:
            while waiting and time.monotonic() - began >= waiting[0][1]:
                streams.append(Stream(asked_ns=time.monotonic_ns()))
                body, _, tenant = waiting.popleft()
                connection = _ask(port, path, body, tenant)
                awaited = until in (None, tenant)
                selector.register(connection, selectors.EVENT_READ, (streams[-1], awaited))
            time.sleep(_PAUSE_S)
            for key, _ in selector.select(0 if waiting else 30):
                stream, awaited = key.data
                if _read(key.fileobj, stream):
                    selector.unregister(key.fileobj)
                    key.fileobj.close()
                    num_awaited -= awaited
        for key in [*selector.get_map().values()]:
            key.fileobj.close()
    return streams


def _ask(port: int, path: str, body: dict[str, Any], tenant: str = "") -> socket.socket:
    connection = socket.create_connection((HOST, port))
    connection.setsockopt(socket.SOL_SOCKET, _SO_TIMESTAMPNS, 1)
    raw = json.dumps(body).encode()
    whose = f"x-tenant-id: {tenant}\r\n" if tenant else ""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\n"
        f"content-length: {len(raw)}\r\nconnection: close\r\n{whose}\r\n"
    )
    connection.sendall(head.encode() + raw)
    return connection


def _read(connection: socket.socket, stream: Stream) -> bool:
    """One piece; True when the stream is done."""
    piece, extras, _, _ = connection.recvmsg(1 << 18, 64)
    now_ns = time.monotonic_ns()
    if not piece:
        raise RuntimeError(f"a stream broke off after {len(stream.events)} events: {stream.rest!r}")
    for level, kind, raw in extras:
        if level == socket.SOL_SOCKET and kind == _SO_TIMESTAMPNS:
            seconds, nanoseconds = _TIMESPEC.unpack(raw)
            now_ns -= time.time_ns() - (seconds * 1_000_000_000 + nanoseconds)
    stream.take(piece, now_ns)
    return stream.is_done
