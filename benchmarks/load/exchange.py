"""One HTTP exchange over a raw socket: cheap, and able to leave in every rude way."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections.abc import AsyncIterator, Mapping
from typing import Any

from benchmarks.load.server import HOST

_LIMIT = 1 << 22  # bytes of a frame
_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: on, zero seconds, so that close sends RST


class BadAnswerError(Exception):
    """The server's bytes are not what HTTP or the event stream demands."""


class Exchange:
    """`async with Exchange(port) as exchange: await exchange.send(path, body)`, then read."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.status = 0
        self.headers: dict[str, str] = {}
        self._is_gone = False

    async def __aenter__(self) -> Exchange:
        self._reader, self._writer = await asyncio.open_connection(HOST, self._port, limit=_LIMIT)
        return self

    async def __aexit__(self, *error: object) -> None:
        if not self._is_gone:
            self.close()

    async def send(self, path: str, body: Mapping[str, Any] | bytes) -> None:
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(raw)}\r\n\r\n"
        )
        self._writer.write(head.encode() + raw)
        await self._writer.drain()

    async def read_head(self) -> int:
        """Status line and headers. Raises BadAnswerError when the connection ends first."""
        line = await self._line()
        try:
            self.status = int(line.split(b" ")[1])
        except (IndexError, ValueError):
            raise BadAnswerError(f"not a status line: {line!r}") from None
        while line := await self._line():
            name, _, value = line.decode("latin-1").partition(":")
            self.headers[name.lower()] = value.strip()
        return self.status

    async def body(self) -> bytes:
        if "content-length" in self.headers:
            return await self._exactly(int(self.headers["content-length"]))
        return b"".join([piece async for piece in self._chunks()])

    async def events(self) -> AsyncIterator[bytes]:
        """The data of each server-sent event, `[DONE]` the last of them.

        Raises BadAnswerError for a stream that stops without it.
        """
        rest = b""
        async for piece in self._chunks():
            *frames, rest = (rest + piece).split(b"\n\n")
            for frame in frames:
                if not frame.startswith(b"data: "):
                    raise BadAnswerError(f"not an event: {frame[:200]!r}")
                yield frame[6:]
                if frame == b"data: [DONE]":
                    return
        raise BadAnswerError("the stream ended without [DONE]")

    def close(self) -> None:
        """A polite FIN."""
        self._is_gone = True
        self._writer.close()

    def reset(self) -> None:
        """A rude RST, as from a process that was killed with data unread."""
        self._is_gone = True
        raw: socket.socket = self._writer.get_extra_info("socket")
        raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        self._writer.transport.abort()

    async def _chunks(self) -> AsyncIterator[bytes]:
        while size := int(await self._line(), 16):
            yield (await self._exactly(size + 2))[:-2]
        await self._line()

    async def _line(self) -> bytes:
        line = await self._reader.readline()
        if not line.endswith(b"\r\n"):
            raise BadAnswerError(f"the connection ended after {line[:100]!r}")
        return line[:-2]

    async def _exactly(self, size: int) -> bytes:
        try:
            return await self._reader.readexactly(size)
        except asyncio.IncompleteReadError as error:
            raise BadAnswerError(f"the connection ended after {len(error.partial)} bytes") from None
