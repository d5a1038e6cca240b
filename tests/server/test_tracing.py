"""Spans arrive at a collector, add up, belong to the caller's trace, and disturb nobody."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

import httpx
import pytest

from headway.core.config import SchedulerConfig
from headway.core.request import FinishReason
from headway.server.tracing import Tracing, make_exporter
from tests.insight.histories import MS, Happening, World
from tests.server.bench import live_server
from tests.server.collector import Collector, attributes, collecting

NOBODY = "http://127.0.0.1:9/v1/traces"  # the discard port: nothing listens there
TIGHT = SchedulerConfig(max_num_seqs=3, max_num_batched_tokens=8, block_size=2, max_model_len=44)


def play(collector: Collector) -> World:
    """A real scheduler in which some are preempted, chunked and withdrawn."""
    tracing = Tracing(collector.url, "m")
    world = World([tracing], TIGHT, failing_steps={9})
    arrivals = [
        Happening(
            at_ns=(1000 + 2 * i) * MS, num_prompt_tokens=9 + i % 3, max_tokens=12, n=1 + i % 2
        )
        for i in range(8)
    ]
    world.play([*arrivals, Happening(at_ns=1015 * MS, withdraws=True)])
    world.clock.advance(2 * MS)
    tracing.delivered(world.requests, world.clock.now_ns())
    tracing.close()
    return world


def test_parts_add_up_to_the_whole_and_have_its_attributes() -> None:
    with collecting() as collector:
        world = play(collector)
    roots = {attributes(span)["gen_ai.request.id"]: span for span in collector.named("llm_request")}
    assert set(roots) == {asked.request_id for asked in world.requests}
    for asked in world.requests:
        root = roots[asked.request_id]
        said = attributes(root)
        e2e_ns = root.end_time_unix_nano - root.start_time_unix_nano
        assert said["gen_ai.usage.prompt_tokens"] == asked.num_prompt_tokens
        assert said["gen_ai.latency.e2e"] == pytest.approx(e2e_ns / 1e9)
        assert said["gen_ai.response.model"] == "m"
        for choice in range(asked.sampling.n):
            parts = [
                part
                for part in collector.children(root)
                if attributes(part)["headway.choice"] == choice
            ]
            lengths = [part.end_time_unix_nano - part.start_time_unix_nano for part in parts]
            assert abs(sum(lengths) - e2e_ns) < MS
    names = {span.name for span in collector.spans}
    assert {"queue", "prefill", "preempted", "recompute", "decode", "delivery"} <= names
    assert collector.service_names == {"headway"}


def test_a_failed_request_is_a_span_with_an_error() -> None:
    with collecting() as collector:
        play(collector)
    failed = [
        span
        for span in collector.named("llm_request")
        if FinishReason.ERROR.value in attributes(span)["gen_ai.response.finish_reasons"]
    ]
    assert failed
    for span in failed:
        assert span.status.message == "the step failed: MemoryError: no room"


def test_a_request_joins_the_trace_of_its_caller(tmp_path: Path) -> None:
    trace_id, span_id = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    body = {"model": "echo", "prompt": "abc", "max_tokens": 3}
    with collecting() as collector:
        with live_server(tmp_path, otlp_traces_endpoint=collector.url) as server:
            headers = {"traceparent": f"00-{trace_id}-{span_id}-01"}
            url = f"{server.url}/v1/completions"
            assert httpx.post(url, json=body, headers=headers).status_code == 200
            assert httpx.post(url, json=body).status_code == 200
            timelines = server.app.state.frontend.timelines
            server.wait_for(lambda: not len(timelines))  # delivered: its client knows it first
            server.app.state.tracing.close()
        first, second = collector.named("llm_request")
    assert first.trace_id.hex() == trace_id
    assert first.parent_span_id.hex() == span_id
    assert second.trace_id.hex() != trace_id
    assert second.parent_span_id == b""
    assert attributes(first)["gen_ai.usage.completion_tokens"] == 3
    names = [part.name for part in collector.children(first)]
    assert names[0] == "queue"
    assert names[-1] == "delivery"


def test_without_a_collector_requests_are_served_and_one_warning_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "0.1")
    with (
        caplog.at_level(logging.DEBUG),
        live_server(tmp_path, otlp_traces_endpoint=NOBODY) as server,
    ):
        for _ in range(5):
            body = {"model": "echo", "prompt": "abc", "max_tokens": 3}
            assert httpx.post(f"{server.url}/v1/completions", json=body).status_code == 200
            time.sleep(0.1)
        began = time.monotonic()
        server.app.state.tracing.close()
        assert time.monotonic() - began < 3
    warnings = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert [record.getMessage() for record in warnings] == [
        f"no collector takes spans at {NOBODY}: they are lost meanwhile"
    ]


@pytest.mark.parametrize(
    ("endpoint", "package"),
    [
        ("http://host:4318", "http"),
        ("http://host:4318/v1/traces", "http"),
        ("https://host/v1/traces", "http"),
        ("http://host:4317", "grpc"),
        ("grpc://host:4317", "grpc"),
        ("host:4317", "grpc"),
    ],
)
def test_the_url_says_which_protocol(endpoint: str, package: str) -> None:
    exporter = make_exporter(endpoint)
    exporter.shutdown()
    assert f".proto.{package}." in type(exporter).__module__


def test_what_is_no_url_gets_a_sentence() -> None:
    with pytest.raises(ValueError, match="otlp_traces_endpoint: 'http://host:x' is no URL"):
        Tracing("http://host:x", "m")


def test_a_missing_package_gets_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with pytest.raises(ValueError, match=r'pip install "headway\[tracing\]"'):
        Tracing(NOBODY, "m")
