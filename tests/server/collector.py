"""A collector of OpenTelemetry spans: takes OTLP over HTTP and keeps what it got."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector:
    def __init__(self) -> None:
        self.spans: list[Any] = []
        self.service_names: set[str] = set()
        self.url = ""

    def take(self, body: bytes) -> None:
        request = ExportTraceServiceRequest.FromString(body)
        for resource_spans in request.resource_spans:
            self.service_names.add(attributes(resource_spans.resource)["service.name"])
            for scope_spans in resource_spans.scope_spans:
                self.spans += scope_spans.spans

    def named(self, name: str) -> list[Any]:
        return [span for span in self.spans if span.name == name]

    def children(self, parent: Any) -> list[Any]:
        """In order of time."""
        found = [span for span in self.spans if span.parent_span_id == parent.span_id]
        return sorted(found, key=lambda span: span.start_time_unix_nano)


def attributes(holder: Any) -> dict[str, Any]:
    return {item.key: _plain(item.value) for item in holder.attributes}


def _plain(value: Any) -> Any:
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [_plain(item) for item in value.array_value.values]
    return getattr(value, kind)


@contextmanager
def collecting() -> Iterator[Collector]:
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            collector.take(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing: the test's output is the test's."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_port}/v1/traces"
    try:
        yield collector
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
