"""HTTP requests by route and status, for the metrics."""

from __future__ import annotations

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.insight.metrics import Metrics


class HttpCounts:
    """Counts a request when its answer has been sent, or is given up, under its route's path."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 500  # of what raises before it answers

        async def send_and_see(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_and_see)
        finally:
            handler = getattr(scope.get("route"), "path", None)
            seconds = time.perf_counter() - began
            self._metrics.on_http(scope["method"], handler, status, seconds)
