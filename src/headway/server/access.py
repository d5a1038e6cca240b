"""Who may come in and with how much: keys, and bodies that say how long they are."""

from __future__ import annotations

import hmac
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from headway.server.errors import ApiError, Problem

HEALTH_PATHS = frozenset({"/health", "/ping"})


def route_path(scope: Scope) -> str:
    """The path as the routes see it: without the prefix that a proxy puts before it."""
    path: str = scope["path"]
    root: str = scope.get("root_path", "")
    if root and path.startswith(root + "/"):
        return path[len(root) :]
    return path


class RootPath:
    """Tells the layers below which prefix a proxy puts before every path."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app = app
        self._prefix = prefix.rstrip("/")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app({**scope, "root_path": self._prefix}, receive, send)


async def answer_with(error: ApiError, scope: Scope, receive: Receive, send: Send) -> None:
    response = JSONResponse(error.body(), error.status, error.headers)
    if error.problem is Problem.INVALID_KEY:
        response.headers["www-authenticate"] = "Bearer"
    if error.problem in (Problem.DRAINING, Problem.TOO_LARGE):
        response.headers["connection"] = "close"
    await response(scope, receive, send)


class KeyCheck:
    """Needs `Authorization: Bearer <key>` everywhere but for health and on `open_paths`.

    Of several keys each is a tenant: `key 1`, `key 2` and so on, in the order of `keys`.
    """

    def __init__(self, app: ASGIApp, keys: Iterable[str], open_paths: Iterable[str] = ()) -> None:
        self._app = app
        self._keys = [key.encode() for key in keys]
        self._open = HEALTH_PATHS | frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or route_path(scope) in self._open:
            await self._app(scope, receive, send)
            return
        if (number := self._number(scope)) is not None:
            if len(self._keys) > 1:
                scope.setdefault("state", {})["key_tenant"] = f"key {number + 1}"
            await self._app(scope, receive, send)
            return
        error = ApiError(
            Problem.INVALID_KEY, "a valid API key is needed: send Authorization: Bearer <key>"
        )
        await answer_with(error, scope, receive, send)

    def _number(self, scope: Scope) -> int | None:
        """Which of the keys was sent."""
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        # Every key is compared, each in constant time: nothing is learned from how long it took.
        raw = given.strip().encode("latin-1")  # as it came: headers are bytes, read as latin-1
        matches = [hmac.compare_digest(raw, key) for key in self._keys]
        return matches.index(True) if scheme.lower() == "bearer" and any(matches) else None


class BodyLimit:
    """A body that says that it is too long is refused before any of it is read."""

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            length = Headers(scope=scope).get("content-length", "")
            if length.isascii() and length.isdigit() and int(length) > self._max_bytes:
                message = f"the body has {int(length):,} bytes and {self._max_bytes:,} are allowed"
                error = ApiError(Problem.TOO_LARGE, message)
                await answer_with(error, scope, receive, send)
                return
        await self._app(scope, receive, send)
