"""The FastAPI application: routes, the layers round them, and errors in one shape."""

from __future__ import annotations

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response

from headway import __version__
from headway.insight.metrics import Metrics
from headway.insight.timeline import Timelines
from headway.server.access import BodyLimit, KeyCheck, RootPath
from headway.server.config import AppSettings
from headway.server.doors import Doors, Traffic, Visits
from headway.server.engine_client import EngineClient
from headway.server.errors import ApiError, Problem
from headway.server.explaining import Explanations
from headway.server.frontend import Frontend
from headway.server.middleware import add_middleware, build_layers
from headway.server.openapi import describe
from headway.server.preemption_log import PreemptionLog
from headway.server.request_ids import RequestIdHeaders
from headway.server.request_log import RequestLog
from headway.server.routes import (
    cache,
    chat,
    completions,
    health,
    metrics,
    models,
    requests,
    responses,
    tokens,
)
from headway.server.tracing import TraceHeaders, Tracing
from headway.text.chat_template import ChatTemplate
from headway.text.tokenizer import Tokenizer
from headway.wire import EngineFacts


def create_app(
    client: EngineClient,
    tokenizer: Tokenizer,
    template: ChatTemplate | None,
    settings: AppSettings,
) -> FastAPI:
    """`client` must be ready: the metrics and the checks at the door read its facts.

    Raises ValueError, with a sentence, for settings that cannot be.
    """
    folded = _metrics(client, settings)
    client.add_fold(folded)
    client.add_watcher(folded)
    client.add_fold(PreemptionLog())
    if settings.enable_log_requests:
        client.add_fold(RequestLog(tokenizer, settings.max_log_len))
    client.brakes.limit(settings.max_num_queued_reqs, settings.max_num_queued_tokens)
    client.brakes.limit_tenants(settings.max_tenant_queued_reqs, settings.max_tenant_queued_tokens)
    tracing = _tracing(client, settings)
    timelines = Timelines(tracing.delivered) if tracing is not None else Timelines()
    client.add_fold(timelines)
    app = FastAPI(
        title="Headway",
        version=__version__,
        openapi_url=None if settings.disable_docs else "/openapi.json",
    )
    app.state.tracing = tracing
    app.state.frontend = Frontend(
        client, tokenizer, template, settings, folded, timelines, _explanations(client, settings)
    )
    for module in (
        completions,
        chat,
        responses,
        tokens,
        models,
        health,
        metrics,
        cache,
        requests,
    ):
        app.include_router(module.router)
    _add_error_shapes(app)
    describe(app)
    _add_layers(app, client, folded, settings)
    build_layers(app)
    return app


def _metrics(client: EngineClient, settings: AppSettings) -> Metrics:
    return Metrics(
        settings.served_model_names[0],
        max_model_len=client.facts.max_model_len,
        cache_config=lambda: _cache_config(client.facts),
        custom_buckets=settings.custom_histogram_buckets,
        is_healthy=lambda: client.health().is_ok,
    )


def _cache_config(facts: EngineFacts) -> dict[str, object]:
    num_tokens = facts.num_blocks * facts.block_size
    return {
        "block_size": facts.block_size,
        "num_gpu_blocks": facts.num_blocks,
        "cache_dtype": facts.kv_cache_dtype,
        "enable_prefix_caching": facts.enable_prefix_caching,
        "gpu_memory_utilization": None,  # the cache is sized in bytes, not as a share of a GPU
        "kv_cache_size_tokens": num_tokens,
        "kv_cache_max_concurrency": round(num_tokens / facts.max_model_len, 2),
        "kv_policy": facts.kv_policy,
        "max_num_seqs": facts.max_num_seqs,
        "max_num_batched_tokens": facts.max_num_batched_tokens,
        "max_model_len": facts.max_model_len,
    }


def _tracing(client: EngineClient, settings: AppSettings) -> Tracing | None:
    """Raises ValueError, with a sentence, where spans cannot be exported."""
    if settings.otlp_traces_endpoint is None:
        return None
    tracing = Tracing(settings.otlp_traces_endpoint, settings.served_model_names[0])
    client.add_fold(tracing)
    client.add_step_fold(tracing)
    return tracing


def _explanations(client: EngineClient, settings: AppSettings) -> Explanations | None:
    if not settings.explain_buffer:
        return None
    explanations = Explanations(client.facts, settings.explain_buffer, client.catch_up)
    client.add_fold(explanations.fold)
    client.add_step_fold(explanations.fold)
    return explanations


def _add_layers(app: FastAPI, client: EngineClient, folded: Metrics, settings: AppSettings) -> None:
    """Each goes round those before it: what is added last is met first."""
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
    if settings.api_keys:
        open_paths = ("/metrics",) if settings.is_metrics_open else ()
        app.add_middleware(KeyCheck, keys=settings.api_keys, open_paths=open_paths)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_methods=settings.allowed_methods,
            allow_headers=settings.allowed_headers,
            allow_credentials=settings.allow_credentials,
        )
    if settings.otlp_traces_endpoint is not None:
        app.add_middleware(TraceHeaders)
    if settings.enable_request_id_headers:
        app.add_middleware(RequestIdHeaders)
    for path in settings.middleware:
        add_middleware(app, path)
    app.state.traffic = Traffic()
    app.add_middleware(Doors, client=client, traffic=app.state.traffic)
    app.add_middleware(
        Visits,
        on_visit=folded.on_http,
        hidden_paths=settings.hidden_paths,
        is_logged=settings.is_access_logged,
    )
    if settings.root_path:
        app.add_middleware(RootPath, prefix=settings.root_path)


def _add_error_shapes(app: FastAPI) -> None:
    @app.exception_handler(ApiError)
    async def on_api_error(request: Request, error: ApiError) -> Response:
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
