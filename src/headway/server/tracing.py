"""Spans to an OpenTelemetry collector, from a thread of the SDK: no request waits for one.

The names of attributes are vLLM's. `opentelemetry` is an extra, imported when tracing is on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from starlette.types import ASGIApp, Receive, Scope, Send

from headway import __version__
from headway.core.events import Event
from headway.core.request import FinishReason, Request
from headway.insight.spans import RequestTrace, SequenceTrace, Traces
from headway.wire import EngineStats, StepTrace

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

_HTTP_PORT = 4318
_TRACE_HEADERS = (b"traceparent", b"tracestate")
_NS = 1e9
_CLOSE_S = 2.0
_log = logging.getLogger("headway")
# What the request being handled said about the trace that it is part of.
_trace_headers: ContextVar[Mapping[str, str]] = ContextVar("trace_headers")


class TraceHeaders:
    """Keeps the trace headers of a request for whoever submits something on its behalf."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = {k.decode(): v for k, v in scope["headers"] if k in _TRACE_HEADERS}
            _trace_headers.set({name: value.decode("latin-1") for name, value in headers.items()})
        await self._app(scope, receive, send)


class Tracing:
    """A fold that exports the spans of every request when it is over.

    `endpoint` is a collector's URL: OTLP over HTTP where it has the path or the port for that, else
    over gRPC. Raises ValueError, with a sentence, for what cannot be.
    """

    def __init__(self, endpoint: str, model_name: str) -> None:
        try:
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

            self._exporter = make_exporter(endpoint)
        except ImportError as error:
            raise ValueError(_missing(error)) from None
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(_quiet(self._exporter, endpoint)))
        self._tracer = self._provider.get_tracer("headway", __version__)
        self._model_name = model_name
        self._traces = Traces(self._export)
        self._to_wall_ns = time.time_ns() - time.monotonic_ns()

    def on_submitted(self, request: Request, now_ns: int) -> None:
        self._traces.on_submitted(request, now_ns, _trace_headers.get({}))

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        self._traces.on_events(events, now_ns)

    def on_step(self, step: StepTrace) -> None:
        self._traces.on_step(step)

    def on_stats(self, stats: EngineStats) -> None:
        """Nothing is learned from these."""

    def delivered(self, requests: Sequence[Request], now_ns: int) -> None:
        self._traces.delivered(requests, now_ns)

    def close(self) -> None:
        """Send what is left; waits for that, for two seconds at most."""
        closing = threading.Thread(target=self._provider.shutdown, daemon=True)
        closing.start()
        closing.join(_CLOSE_S)
        self._exporter.shutdown()

    def _export(self, trace: RequestTrace) -> None:
        try:
            self._make_spans(trace)
        except Exception:  # who watches must not stop what is watched
            _log.exception("cannot make the spans of %s", trace.request.request_id)

    def _make_spans(self, trace: RequestTrace) -> None:
        from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context

        root = self._tracer.start_span(
            "llm_request",
            context=_parent(trace.origin),
            kind=SpanKind.SERVER,
            start_time=trace.arrival_ns + self._to_wall_ns,
            attributes=_request_attributes(trace, self._model_name),
        )
        errors = [s.detail for s in trace.sequences if s.finish_reason is FinishReason.ERROR]
        if errors:
            root.set_status(Status(StatusCode.ERROR, errors[0]))
        inside = set_span_in_context(root)
        for sequence in trace.sequences:
            self._make_parts(sequence, inside)
        root.end(trace.end_ns + self._to_wall_ns)

    def _make_parts(self, sequence: SequenceTrace, inside: Context) -> None:
        for part in sequence.spans:
            span = self._tracer.start_span(
                part.name,
                context=inside,
                start_time=part.start_ns + self._to_wall_ns,
                attributes={"headway.choice": sequence.index}
                | {f"headway.{name}": value for name, value in part.attributes.items()},
            )
            span.end(part.end_ns + self._to_wall_ns)


def make_exporter(endpoint: str) -> SpanExporter:
    """Raises ImportError where its package is missing, ValueError for no URL."""
    try:
        url = urlsplit(endpoint)
        is_http = url.path.rstrip("/").endswith("/v1/traces") or url.port == _HTTP_PORT
    except ValueError as error:
        raise ValueError(f"otlp_traces_endpoint: {endpoint!r} is no URL: {error}") from None
    if is_http:
        from opentelemetry.exporter.otlp.proto.http import trace_exporter as http

        whole = endpoint if url.path.strip("/") else f"{endpoint.rstrip('/')}/v1/traces"
        return http.OTLPSpanExporter(endpoint=whole)
    from opentelemetry.exporter.otlp.proto.grpc import trace_exporter as grpc

    return grpc.OTLPSpanExporter(endpoint=endpoint, insecure=url.scheme != "https")


def _resource() -> Resource:
    """What OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES say, and a name where they say none."""
    from opentelemetry.sdk.resources import SERVICE_NAME, Resource

    found = Resource.create()
    if str(found.attributes.get(SERVICE_NAME, "")).startswith("unknown_service"):
        return found.merge(Resource({SERVICE_NAME: "headway"}))
    return found


def _missing(error: ImportError) -> str:
    return (
        f"traces need OpenTelemetry, and {error.name} is not installed: "
        f'pip install "headway[tracing]", or leave out --otlp-traces-endpoint'
    )


def _parent(origin: object) -> Context | None:
    """The trace that the request's headers name, if they do."""
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

    return TraceContextTextMapPropagator().extract(origin) if isinstance(origin, dict) else None


def _request_attributes(trace: RequestTrace, model_name: str) -> dict[str, Any]:
    """vLLM's, in seconds; of n sequences the first token is the earliest, the rest the longest."""
    sampling = trace.request.sampling
    attributes = {
        "gen_ai.response.model": model_name,
        "gen_ai.request.id": trace.request.request_id,
        "gen_ai.request.temperature": sampling.temperature,
        "gen_ai.request.top_p": sampling.top_p,
        "gen_ai.request.max_tokens": sampling.max_tokens,
        "gen_ai.request.n": sampling.n,
        "gen_ai.usage.num_sequences": len(trace.sequences),
        "gen_ai.usage.prompt_tokens": trace.request.num_prompt_tokens,
        "gen_ai.usage.completion_tokens": sum(s.num_output_tokens for s in trace.sequences),
        "gen_ai.response.finish_reasons": [
            s.finish_reason.value for s in trace.sequences if s.finish_reason is not None
        ],
        "gen_ai.latency.e2e": (trace.end_ns - trace.arrival_ns) / _NS,
        "headway.cached_tokens": max((s.num_cached_tokens for s in trace.sequences), default=0),
        "headway.preemptions": sum(s.num_preemptions for s in trace.sequences),
        **_latencies(trace),
    }
    return {name: value for name, value in attributes.items() if value is not None}


def _latencies(trace: RequestTrace) -> dict[str, float]:
    admitted = [s for s in trace.sequences if s.admitted_ns]
    begun = [s for s in admitted if s.first_token_ns]
    times: dict[str, int] = {}
    if admitted:
        times["time_in_queue"] = max(s.admitted_ns for s in admitted) - trace.arrival_ns
    if begun:
        times["time_to_first_token"] = min(s.first_token_ns for s in begun) - trace.arrival_ns
        times["time_in_model_prefill"] = max(s.first_token_ns - s.admitted_ns for s in begun)
        times["time_in_model_decode"] = max(s.last_token_ns - s.first_token_ns for s in begun)
        times["time_in_model_inference"] = max(s.last_token_ns - s.admitted_ns for s in begun)
    return {f"gen_ai.latency.{name}": ns / _NS for name, ns in times.items()}


def _quiet(exporter: SpanExporter, endpoint: str) -> SpanExporter:
    """One warning when a collector stops answering, not one for every attempt."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    for name in ("opentelemetry.exporter", "opentelemetry.sdk"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)

    class Quiet(SpanExporter):
        def __init__(self) -> None:
            self.is_down = False

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            result = exporter.export(spans)
            is_down = result is not SpanExportResult.SUCCESS
            if is_down and not self.is_down:
                _log.warning("no collector takes spans at %s: they are lost meanwhile", endpoint)
            self.is_down = is_down
            return result

        def shutdown(self) -> None:
            exporter.shutdown()

        def force_flush(self, timeout_millis: int = 30000) -> bool:
            return exporter.force_flush(timeout_millis)

    return Quiet()
