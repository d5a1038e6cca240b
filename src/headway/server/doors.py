"""The outermost layers: what is under way is counted and logged, and nothing new comes in once the
server is about to leave."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.server.access import HEALTH_PATHS, answer_with, route_path
from headway.server.engine_client import EngineClient
from headway.server.errors import ApiError, Problem

CLIENT_GONE = Problem.CLIENT_GONE.value.status
_STAY_OPEN = HEALTH_PATHS | {"/metrics"}
_log = logging.getLogger("headway.access")


class Traffic:
    """How many requests are being answered, those for health and metrics not counted."""

    def __init__(self) -> None:
        self.num_active = 0

    async def until_none(self, timeout_s: float) -> bool:
        """Whether all were answered in time."""
        deadline = time.monotonic() + timeout_s
        while self.num_active and time.monotonic() < deadline:
            await asyncio.sleep(0.02)
        return not self.num_active


class Doors:
    """Lets requests in until the client drains; then 503, but for health and metrics."""

    def __init__(self, app: ASGIApp, client: EngineClient, traffic: Traffic) -> None:
        self._app = app
        self._client = client
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or route_path(scope) in _STAY_OPEN:
            await self._app(scope, receive, send)
        elif self._client.is_draining:
            self._client.refused("draining")
            message = "the server is shutting down: send this to another, or try again soon"
            error = ApiError(Problem.DRAINING, message, retry_after_s=1)
            await answer_with(error, scope, receive, send)
        else:
            self._traffic.num_active += 1
            try:
                await self._app(scope, receive, send)
            finally:
                self._traffic.num_active -= 1


# Method, the route's path (None where no route fits), status, seconds.
OnVisit = Callable[[str, str | None, int, float], None]


class Visits:
    """Tells `on_visit` of every request that has ended, and the access log, which has one line for
    each: method, path, status, milliseconds, request id.

    Neither queries nor bodies are logged. 499: the client went before its answer was complete.
    The request id is what a route puts into `request.state.request_id`, or X-Request-Id.
    """

    def __init__(
        self,
        app: ASGIApp,
        on_visit: OnVisit,
        hidden_paths: Iterable[str] = (),
        *,
        is_logged: bool = True,
    ) -> None:
        self._app = app
        self._on_visit = on_visit
        self._hidden = frozenset(hidden_paths)
        self._is_logged = is_logged

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        visit = _Visit(scope, receive, send)
        try:
            await self._app(scope, visit.receive, visit.send)
        except Exception:
            visit.status = visit.status or 500
            raise
        finally:
            self._end(visit, scope)

    def _end(self, visit: _Visit, scope: Scope) -> None:
        seconds = visit.seconds()
        route = getattr(scope.get("route"), "path", None)
        self._on_visit(scope["method"], route, visit.final_status(), seconds)
        if self._is_logged and route_path(scope) not in self._hidden:
            visit.log(seconds)


class _Visit:
    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})
        self._scope = scope
        self._receive = receive
        self._send = send
        self._began = time.perf_counter()
        self._is_complete = False
        self._is_gone = False
        self.status = 0

    async def receive(self) -> Message:
        message = await self._receive()
        if message["type"] == "http.disconnect":
            self._is_gone = True
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        elif not message.get("more_body", False):
            self._is_complete = not self._is_gone
        await self._send(message)

    def seconds(self) -> float:
        return time.perf_counter() - self._began

    def final_status(self) -> int:
        return self.status if self._is_complete or not self._is_gone else CLIENT_GONE

    def log(self, seconds: float) -> None:
        fields: dict[str, Any] = {
            "method": self._scope["method"],
            "path": _plain(self._scope["path"], 200),
            "status": self.final_status(),
            "ms": round(seconds * 1000, 1),
            "request_id": self._request_id(),
        }
        _log.info("%(method)s %(path)s %(status)d %(ms).1f ms %(request_id)s", fields, extra=fields)

    def _request_id(self) -> str:
        own = self._scope["state"].get("request_id")
        return _plain(own or Headers(scope=self._scope).get("x-request-id", "-"), 100)


def _plain(text: str, length: int) -> str:
    """On one line, whatever a client put into it."""
    return "".join(c if c.isprintable() and c != " " else "?" for c in text[:length])
