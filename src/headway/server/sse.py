"""Server-sent events, and the race between an answer and its client's going away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from headway.server.errors import ApiError, Problem

Result = TypeVar("Result")
DONE = b"data: [DONE]\n\n"
_encode = msgspec.json.Encoder().encode


def frame(body: msgspec.Struct) -> bytes:
    return b"data: " + _encode(body) + b"\n\n"


def named_frame(name: str, body: msgspec.Struct) -> bytes:
    return b"event: " + name.encode() + b"\n" + frame(body)


async def until_disconnect(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, or ApiError(CLIENT_GONE) as soon as the client hangs up.

    The body must have been read before: what `receive` has next is the disconnect.
    """
    task = asyncio.create_task(work)
    gone = asyncio.create_task(_disconnected(request.receive))
    try:
        await asyncio.wait((task, gone), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ApiError(Problem.CLIENT_GONE, "the client closed the connection")
    finally:
        await _cancel(task, gone)


class JsonAnswer(Response):
    """A struct as JSON; `on_close` is called when its last byte was handed to the transport."""

    media_type = "application/json"

    def __init__(
        self,
        body: object,
        headers: Mapping[str, str] | None = None,
        on_close: Callable[[], None] = lambda: None,
        status: int = 200,
    ) -> None:
        super().__init__(_encode(body), status_code=status, headers=headers)
        self._on_close = on_close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._on_close()


class EventStream(StreamingResponse):
    """Sends the frames until they end or the client goes; `on_close` is called either way."""

    def __init__(
        self,
        frames: AsyncIterator[bytes],
        on_close: Callable[[], None],
        headers: Mapping[str, str],
    ) -> None:
        super().__init__(
            frames,
            media_type="text/event-stream",
            headers={**headers, "cache-control": "no-cache", "x-accel-buffering": "no"},
        )
        self._on_close = on_close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sender = asyncio.create_task(self.stream_response(send))
        gone = asyncio.create_task(_disconnected(receive))
        try:
            await asyncio.wait((sender, gone), return_when=asyncio.FIRST_COMPLETED)
            if sender.done() and not isinstance(sender.exception(), OSError):
                sender.result()
        finally:
            self._on_close()
            await _cancel(sender, gone)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancel(*tasks: asyncio.Task[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
