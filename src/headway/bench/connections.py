"""Connections to the server, kept for the next request when an answer leaves them usable."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, cast

from headway.bench.answer import Answer
from headway.bench.outcome import Ending
from headway.bench.target import Target

ClockNs = Callable[[], int]
_CONNECT_S = 30.0


class Dial(Protocol):
    """Opens a connection to the server. Raises OSError."""

    def __call__(
        self, make: Callable[[], asyncio.Protocol], /
    ) -> Awaitable[tuple[asyncio.BaseTransport, asyncio.BaseProtocol]]: ...


def dial(target: Target) -> Dial:
    """Over TCP, with TLS where the target has it."""

    async def open_one(
        make: Callable[[], asyncio.Protocol], /
    ) -> tuple[asyncio.BaseTransport, asyncio.BaseProtocol]:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_S):
                return await loop.create_connection(make, target.host, target.port, ssl=target.tls)
        except TimeoutError:
            raise OSError(f"no connection within {_CONNECT_S:g} s") from None
        except UnicodeError:
            raise OSError(f"{target.host[:80]!r} is no name of a host") from None

    return open_one


class Connection(asyncio.Protocol):
    """One answer at a time; `on_free` is told when the next request may be sent."""

    def __init__(self, clock_ns: ClockNs, on_free: Callable[[Connection], None]) -> None:
        self._clock_ns = clock_ns
        self._on_free = on_free
        self._transport: asyncio.Transport | None = None
        self._answer: Answer | None = None
        self._ended: asyncio.Future[None] | None = None
        self.is_open = False
        self.num_asked = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self.is_open = True

    async def ask(self, request: bytes, answer: Answer) -> None:
        """Returns when the answer has ended."""
        assert self._transport is not None
        self._answer = answer
        self.num_asked += 1
        self._ended = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        try:
            await self._ended
        finally:
            is_served = answer.ending is Ending.SERVED
            # Behind [DONE] the framing's last bytes are still to come.
            if not (answer.reader.may_stay_open or (is_served and not answer.reader.is_whole)):
                self.close()

    def data_received(self, data: bytes) -> None:
        answer = self._answer
        if answer is None:
            self.close()  # nobody asked
            return
        answer.take(data, self._clock_ns())
        if answer.ending is None:
            return
        self._wake()
        if answer.reader.may_stay_open and self.is_open:
            self._answer = None
            self._on_free(self)

    def connection_lost(self, exception: Exception | None) -> None:
        self.is_open = False
        if self._answer is not None:
            self._answer.close()
        self._wake()

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    def _wake(self) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)


class Connections:
    """Of one load. Raises OSError from `get` where the server cannot be reached."""

    def __init__(self, dial: Dial, clock_ns: ClockNs) -> None:
        self._dial = dial
        self._clock_ns = clock_ns
        self._free: list[Connection] = []
        self._all: set[Connection] = set()

    async def get(self) -> Connection:
        """The one that was used last, which the server is least likely to close; or a new one."""
        while self._free:
            connection = self._free.pop()
            if connection.is_open:
                return connection
        return await self.get_new()

    async def get_new(self) -> Connection:
        _, protocol = await self._dial(lambda: Connection(self._clock_ns, self._free.append))
        connection = cast(Connection, protocol)
        self._all = {one for one in self._all if one.is_open} | {connection}
        return connection

    def close(self) -> None:
        for connection in self._all:
            connection.close()
