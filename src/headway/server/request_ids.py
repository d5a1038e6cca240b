"""X-Request-Id on every answer, where the operator wants it."""

from __future__ import annotations

import uuid

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headway.server.arrival import ID_HEADER, is_request_id


class RequestIdHeaders:
    """The id that the answer's own id ends in; elsewhere the client's, or one made up here."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[ID_HEADER] = _name(scope)
            await send(message)

        await self._app(scope, receive, send_named)


def _name(scope: Scope) -> str:
    given = Headers(scope=scope).get(ID_HEADER)
    if given is not None:
        return given if is_request_id(given) else uuid.uuid4().hex
    return scope.get("state", {}).get("request_name") or uuid.uuid4().hex
