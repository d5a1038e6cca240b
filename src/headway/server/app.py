"""The FastAPI application: routes, the key at the door, and errors in one shape."""

from __future__ import annotations

import hmac
import logging

from fastapi import FastAPI
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from headway import __version__
from headway.insight.metrics import Metrics
from headway.insight.timeline import Timelines
from headway.server.config import AppSettings
from headway.server.engine_client import EngineClient
from headway.server.errors import ApiError, Problem
from headway.server.frontend import Frontend
from headway.server.openapi import describe
from headway.server.routes import (
    cache,
    chat,
    completions,
    health,
    metrics,
    models,
    responses,
    tokens,
)
from headway.text.chat_template import ChatTemplate
from headway.text.tokenizer import Tokenizer

_log = logging.getLogger("headway")
_OPEN_PATHS = frozenset({"/health"})


def create_app(
    client: EngineClient,
    tokenizer: Tokenizer,
    template: ChatTemplate | None,
    settings: AppSettings,
) -> FastAPI:
    """`client` must be ready: the metrics and the checks at the door read its facts."""
    facts = client.facts
    folded = Metrics(
        settings.served_model_names[0],
        max_model_len=facts.max_model_len,
        cache_config={
            "block_size": facts.block_size,
            "num_gpu_blocks": facts.num_blocks,
            "cache_dtype": facts.kv_cache_dtype,
            "enable_prefix_caching": facts.enable_prefix_caching,
            "kv_cache_size_tokens": facts.num_blocks * facts.block_size,
            "kv_policy": facts.kv_policy,
        },
    )
    client.add_fold(folded)
    client.brakes.limit(settings.max_num_queued_reqs, settings.max_num_queued_tokens)
    app = FastAPI(title="Headway", version=__version__)
    timelines = Timelines()
    client.add_fold(timelines)
    app.state.frontend = Frontend(client, tokenizer, template, settings, folded, timelines)
    for module in (completions, chat, responses, tokens, models, health, metrics, cache):
        app.include_router(module.router)
    _add_error_shapes(app)
    describe(app)
    if settings.api_keys:
        app.add_middleware(KeyCheck, keys=settings.api_keys)
    return app


class KeyCheck:
    """Every path but /health needs `Authorization: Bearer <key>`."""

    def __init__(self, app: ASGIApp, keys: tuple[str, ...]) -> None:
        self._app = app
        self._keys = [key.encode() for key in keys]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in _OPEN_PATHS or self._is_known(scope):
            await self._app(scope, receive, send)
            return
        error = ApiError(
            Problem.INVALID_KEY, "a valid API key is needed: send Authorization: Bearer <key>"
        )
        response = JSONResponse(error.body(), error.status, {"www-authenticate": "Bearer"})
        await response(scope, receive, send)

    def _is_known(self, scope: Scope) -> bool:
        scheme, _, given = Headers(scope=scope).get("authorization", "").partition(" ")
        # Every key is compared, each in constant time: nothing is learned from how long it took.
        raw = given.strip().encode("latin-1")  # as it came: headers are bytes, read as latin-1
        matches = [hmac.compare_digest(raw, key) for key in self._keys]
        return scheme.lower() == "bearer" and any(matches)


def _add_error_shapes(app: FastAPI) -> None:
    @app.exception_handler(ApiError)
    async def on_api_error(request: Request, error: ApiError) -> Response:
        if error.problem is Problem.CLIENT_GONE:
            _log.info("client gone: %s %s", request.method, request.url.path)
        return JSONResponse(error.body(), error.status, error.headers)

    @app.exception_handler(ClientDisconnect)
    async def on_disconnect(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=Problem.CLIENT_GONE.value.status)

    @app.exception_handler(HTTPException)
    async def on_http_error(request: Request, error: HTTPException) -> Response:
        problem = Problem.WRONG_METHOD if error.status_code == 405 else Problem.NOT_FOUND
        answer = ApiError(problem, f"{request.method} {request.url.path}: {error.detail}")
        return JSONResponse(answer.body(), error.status_code, error.headers)

    @app.exception_handler(Exception)
    async def on_fault(request: Request, error: Exception) -> Response:
        answer = ApiError(Problem.INTERNAL, "the server failed on this request; its log says why")
        return JSONResponse(answer.body(), answer.status)
