"""Metrics by example: what a number means."""

from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families as parse_text

from headway.core.events import Admitted, Advanced, Queued, RefusalCause, Rejected, Retired
from headway.core.request import FinishReason, Request, SamplingParams
from headway.core.step import Blocker
from headway.insight.metrics import Metrics
from headway.insight.metrics.door import SERVER_CAUSES
from tests.insight.readings import new_metrics, samples, stats, total, value

SECOND = 1_000_000_000


def request(name: str, *, n: int = 1, num_prompt: int = 4) -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=tuple(range(num_prompt)),
        sampling=SamplingParams(n=n, max_tokens=8),
        arrival_ns=SECOND,
    )


def test_times_of_one_request() -> None:
    metrics = new_metrics()
    metrics.on_submitted(request("r"), SECOND)
    metrics.on_events([Queued(0, "r", 0)], SECOND)
    metrics.on_events([Admitted(0, "r", 1)], 2 * SECOND)
    metrics.on_events([Advanced(0, "r", (5,))], 4 * SECOND)
    metrics.on_events([Advanced(0, "r", (6,))], 5 * SECOND)
    last = [Advanced(0, "r", (7,)), Retired(0, "r", FinishReason.LENGTH)]
    metrics.on_events(last, 8 * SECOND)
    for name, seconds in (
        ("time_to_first_token_seconds", 3),
        ("inter_token_latency_seconds", 4),
        ("time_per_output_token_seconds", 4),
        ("request_queue_time_seconds", 1),
        ("request_prefill_time_seconds", 2),
        ("request_decode_time_seconds", 4),
        ("request_inference_time_seconds", 6),
        ("request_time_per_output_token_seconds", 2),
        ("e2e_request_latency_seconds", 7),
    ):
        assert value(metrics, f"vllm:{name}_sum") == seconds, name
    assert value(metrics, "vllm:request_success_total", finished_reason="length") == 1
    assert value(metrics, "vllm:prefix_cache_queries_total") == 4
    assert value(metrics, "vllm:prefix_cache_hits_total") == 1
    assert value(metrics, "vllm:request_prefill_kv_computed_tokens_sum") == 3


def test_gauges_follow_the_state_and_are_zero_at_idle() -> None:
    metrics = new_metrics()
    busy = stats(
        1,
        num_running=2,
        num_waiting=3,
        num_total_blocks=8,
        num_held_blocks=2,
        num_cached_blocks=1,
        num_resident_tokens=20,
        num_backlog_tokens=33,
        waiting_reasons={"blocks": 1, "adapter": 2},
    )
    metrics.on_stats(busy)
    assert value(metrics, "vllm:num_requests_running") == 2
    assert value(metrics, "vllm:num_requests_waiting") == 3
    assert value(metrics, "vllm:kv_cache_usage_perc") == 0.25
    assert value(metrics, "vllm:gpu_cache_usage_perc") == 0.25
    assert value(metrics, "headway:backlog_tokens") == 33
    assert value(metrics, "vllm:num_requests_waiting_by_reason", reason="capacity") == 1
    assert value(metrics, "vllm:num_requests_waiting_by_reason", reason="deferred") == 2
    reasons = {b.value: value(metrics, "headway:waiting_requests", reason=b.value) for b in Blocker}
    assert {reason: n for reason, n in reasons.items() if n} == {"blocks": 1, "adapter": 2}
    states = {s: value(metrics, "headway:blocks", state=s) for s in ("free", "held", "cached")}
    assert states == {"free": 5, "held": 2, "cached": 1}
    metrics.on_stats(stats(2, num_total_blocks=8, num_cached_blocks=3))
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting"):
        assert value(metrics, name) == 0
    assert value(metrics, "vllm:kv_cache_usage_perc") == 0
    assert total(metrics, "headway:waiting_requests") == 0
    assert value(metrics, "headway:resident_tokens") == 0


def test_a_withdrawn_sequence_does_not_make_the_waiting_negative() -> None:
    metrics = new_metrics()
    metrics.on_stats(stats(num_waiting=0, waiting_reasons={"adapter": 1}))
    assert total(metrics, "vllm:num_requests_waiting_by_reason") == 0
    assert value(metrics, "vllm:num_requests_waiting_by_reason", reason="capacity") == 0


def test_absent_is_not_zero_every_label_value_is_there_from_the_start() -> None:
    metrics = new_metrics()
    for reason in ("stop", "length", "abort", "error", "repetition"):
        assert value(metrics, "vllm:request_success_total", finished_reason=reason) == 0
    for cause in (*SERVER_CAUSES, *(cause.value for cause in RefusalCause)):
        assert value(metrics, "vllm:admission_rejections_total", reason=cause) == 0
    for source in ("local_compute", "local_cache_hit", "external_kv_transfer"):
        assert value(metrics, "vllm:prompt_tokens_by_source_total", source=source) == 0
    assert value(metrics, "vllm:time_to_first_token_seconds_count") == 0


def test_each_cause_of_refusal_is_counted_once() -> None:
    metrics = new_metrics()
    causes = [cause.value for cause in RefusalCause]
    for cause in RefusalCause:
        metrics.on_submitted(request(cause.value), SECOND)
        metrics.on_events([Rejected(cause.value, "no", cause)], SECOND)
    for cause in SERVER_CAUSES:
        metrics.on_refused(cause)
        causes.append(cause)
    for name in causes:
        assert value(metrics, "vllm:admission_rejections_total", reason=name) == 1
    assert metrics.num_live == 0


def test_health_is_asked_when_the_metrics_are_read() -> None:
    answers = [True]
    metrics = new_metrics(is_healthy=lambda: answers[-1])
    assert value(metrics, "vllm:engine_healthy") == 1
    answers.append(False)
    assert value(metrics, "vllm:engine_healthy") == 0


def test_another_engine_may_be_set_up_otherwise() -> None:
    configs = [{"block_size": 16}]
    metrics = new_metrics(cache_config=lambda: configs[-1])
    metrics.on_events([], SECOND)
    metrics.on_stats(stats(7))
    configs.append({"block_size": 32})
    metrics.on_restarted()
    assert value(metrics, "headway:engine_restarts_total") == 1
    found = samples(metrics, "vllm:cache_config_info")
    assert [sample.labels["block_size"] for sample in found] == ["32"]
    steps = value(metrics, "vllm:iteration_tokens_total_count")
    metrics.on_events([], 2 * SECOND)
    metrics.on_stats(stats(1))  # its steps begin at 0 again
    assert value(metrics, "vllm:iteration_tokens_total_count") == steps + 1


def test_http_requests_have_few_labels_and_probes_none() -> None:
    metrics = new_metrics()
    metrics.on_http("POST", "/v1/completions", 200, 0.2)
    metrics.on_http("POST", "/v1/completions", 503, 0.1)
    metrics.on_http("BREW", None, 404, 0.1)
    metrics.on_http("GET", "/health", 200, 0.1)
    found = {
        (s.labels["method"], s.labels["status"], s.labels["handler"]): s.value
        for s in samples(metrics, "http_requests_total")
    }
    assert found == {
        ("POST", "2xx", "/v1/completions"): 1,
        ("POST", "5xx", "/v1/completions"): 1,
        ("other", "4xx", "other"): 1,
    }
    assert total(metrics, "http_request_duration_seconds_sum") == pytest.approx(0.4)


def test_names_on_the_wire() -> None:
    text, content_type = new_metrics().exposition()
    assert content_type.startswith("text/plain")
    for name in (
        b"vllm:num_requests_running{",
        b"vllm:prompt_tokens_total{",
        b"vllm:time_to_first_token_seconds_bucket{",
        b"vllm:iteration_tokens_total_count{",
        b'vllm:cache_config_info{block_size="16"',
        b"headway:preemption_refunded_tokens_total{",
        b"process_resident_memory_bytes ",
    ):
        assert b"\n" + name in text, name


def test_the_text_parses_and_has_every_family() -> None:
    metrics = new_metrics()
    text, _ = metrics.exposition()
    parsed = {family.name for family in parse_text(text.decode())}
    assert {family.name for family in metrics.registry.collect()} <= parsed


def test_buckets_can_be_replaced_by_family() -> None:
    metrics = new_metrics(custom_buckets={"request_latency": [0.5, 2]})
    bounds = {
        sample.labels["le"] for sample in samples(metrics, "vllm:request_queue_time_seconds_bucket")
    }
    assert bounds == {"0.5", "2.0", "+Inf"}


@pytest.mark.parametrize(
    ("buckets", "sentence"),
    [
        ({"latency": [1, 2]}, "'latency' is no family of buckets; there are request_latency, "),
        ({"request_tokens": [2, 1]}, "the bounds of request_tokens must be numbers above 0"),
        ({"request_tokens": []}, "the bounds of request_tokens must be numbers above 0"),
        ({"request_tokens": [0, 1]}, "the bounds of request_tokens must be numbers above 0"),
        ({"request_tokens": [1, float("inf")]}, "the bounds of request_tokens must be"),
        ({"request_tokens": ["1"]}, "the bounds of request_tokens must be"),
        ({"request_tokens": "12"}, "the bounds of request_tokens must be"),
    ],
)
def test_bad_buckets_are_refused_with_a_sentence(buckets: dict, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Metrics("m", max_model_len=100, cache_config=dict, custom_buckets=buckets)
