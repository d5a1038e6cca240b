"""What came to the door: refusals, and HTTP requests as dashboards of vLLM count them."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import Counter, Histogram

from headway.core.events import Event, RefusalCause, Rejected
from headway.insight.metrics.families import Families

# Those of the API process, before a request reaches the engine.
SERVER_CAUSES = (
    "queue_reqs",
    "queue_tokens",
    "tenant_reqs",
    "tenant_tokens",
    "draining",
    "engine_dead",
)
# Probes say nothing about what people asked for.
UNCOUNTED = frozenset({"/health", "/ping", "/metrics", "/version", "/load"})
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER = "other"


class DoorMetrics:
    """Refusals by cause, and HTTP requests by route and class of status."""

    def __init__(self, families: Families, http_bounds: Sequence[float]) -> None:
        self._rejections = families.counters(
            "vllm:admission_rejections",
            "Requests refused before they were queued, by cause.",
            "reason",
            (*SERVER_CAUSES, *(cause.value for cause in RefusalCause)),
        )
        self._requests = Counter(
            "http_requests",
            "HTTP requests by method, class of status (2xx …) and route; probes do not count.",
            ["method", "status", "handler"],
            registry=families.registry,
        )
        self._seconds = Histogram(
            "http_request_duration_seconds",
            "From a request's head to the last byte of its answer, by method and route.",
            ["method", "handler"],
            buckets=http_bounds,
            registry=families.registry,
        )

    def on_events(self, events: Sequence[Event]) -> None:
        for event in events:
            if isinstance(event, Rejected):
                self.on_refused(event.cause.value)

    def on_refused(self, cause: str) -> None:
        self._rejections[cause].inc()

    def on_http(self, method: str, handler: str | None, status: int, duration_s: float) -> None:
        if handler in UNCOUNTED:
            return
        # Few labels, whatever clients send.
        handler = handler or OTHER
        method = method if method in METHODS else OTHER
        self._requests.labels(method, f"{status // 100}xx", handler).inc()
        self._seconds.labels(method, handler).observe(duration_s)
