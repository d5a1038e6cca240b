"""Laws that hold for the metrics of any history."""

from __future__ import annotations

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from headway.core.events import (
    Aborted,
    Admitted,
    Advanced,
    Event,
    Preempted,
    Queued,
    Rejected,
    Resumed,
    Retired,
)
from headway.core.request import FinishReason, Request, SamplingParams
from headway.insight.buckets import length_buckets
from headway.insight.metrics import Metrics

SECOND = 1_000_000_000
LABELS = {"model_name": "m", "engine": "0"}


def new_metrics() -> Metrics:
    return Metrics("m", max_model_len=100, cache_config={"block_size": 16, "cache_dtype": "f32"})


def request(name: str, *, n: int = 1, num_prompt: int = 4) -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=tuple(range(num_prompt)),
        sampling=SamplingParams(n=n, max_tokens=8),
        arrival_ns=SECOND,
    )


def stats(step_index: int = 0, **values: int) -> SimpleNamespace:
    names = ("num_running", "num_waiting", "num_total_blocks", "num_held_blocks")
    names += ("num_cached_blocks", "num_resident_tokens")
    return SimpleNamespace(step_index=step_index, **{**dict.fromkeys(names, 0), **values})


def value(metrics: Metrics, name: str, **labels: str) -> float:
    found = metrics.registry.get_sample_value(name, {**LABELS, **labels})
    assert found is not None, f"no sample {name}"
    return found


# How far a sequence gets: rejected, queued, admitted, or with so many tokens; and how it ends.
LIVES = st.lists(
    st.tuples(
        st.sampled_from(["rejected", "queued", "admitted", "tokens"]),
        st.integers(1, 5),
        st.sampled_from(list(FinishReason)),
        st.booleans(),
    ),
    max_size=20,
)


def history(lives: list) -> list[tuple[Request, list[Event]]]:
    told = []
    for number, (stage, num_tokens, reason, is_preempted) in enumerate(lives):
        name = f"r{number}"
        refused = Rejected(name, "too long")
        events: list[Event] = [refused if stage == "rejected" else Queued(number, name, 0)]
        if stage in ("admitted", "tokens"):
            events.append(Admitted(number, name, 2))
        if stage == "tokens":
            events += [Advanced(number, name, (i,)) for i in range(num_tokens)]
            if is_preempted:
                events.append(Preempted(number, name, number, 4, 0, 1, 1))
                events.append(Resumed(number, name, 3, 1))
        if stage == "tokens" and reason is not FinishReason.ABORT:
            events.append(Retired(number, name, reason))
        elif stage != "rejected":
            events.append(Aborted(number, name))
        told.append((request(name), events))
    return told


@given(LIVES)
def test_counts_agree_for_any_history(lives: list) -> None:
    metrics = new_metrics()
    for number, (asked, events) in enumerate(history(lives)):
        metrics.on_submitted(asked, SECOND)
        metrics.on_events(events, 2 * SECOND)
        metrics.on_stats(stats(number + 1))
    accepted = [life for life in lives if life[0] != "rejected"]
    with_token = [life for life in lives if life[0] == "tokens"]
    ttft = value(metrics, "vllm:time_to_first_token_seconds_count")
    assert ttft == len(with_token)
    assert ttft == value(metrics, "vllm:request_decode_time_seconds_count")
    assert ttft == value(metrics, "vllm:request_prefill_time_seconds_count")
    assert value(metrics, "vllm:e2e_request_latency_seconds_count") == len(accepted)
    assert value(metrics, "vllm:prompt_tokens_total") == 4 * len(with_token)
    generated = sum(life[1] for life in with_token)
    assert value(metrics, "vllm:generation_tokens_total") == generated
    assert value(metrics, "vllm:inter_token_latency_seconds_count") == generated - len(with_token)
    assert value(metrics, "vllm:iteration_tokens_total_sum") == generated + 4 * len(with_token)
    assert value(metrics, "vllm:iteration_tokens_total_count") == len(lives)
    num_preempted = sum(life[3] for life in with_token)
    assert value(metrics, "vllm:num_preemptions_total") == num_preempted
    assert value(metrics, "headway:preemption_recomputed_tokens_total") == num_preempted
    assert value(metrics, "headway:preemption_refunded_tokens_total") == 3 * num_preempted
    assert not metrics._pending
    assert not metrics._lives


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


def test_gauges_follow_the_state_and_are_zero_at_idle() -> None:
    metrics = new_metrics()
    metrics.on_stats(
        stats(
            1,
            num_running=2,
            num_waiting=3,
            num_total_blocks=8,
            num_held_blocks=2,
            num_cached_blocks=1,
            num_resident_tokens=20,
        )
    )
    assert value(metrics, "vllm:num_requests_running") == 2
    assert value(metrics, "vllm:num_requests_waiting") == 3
    assert value(metrics, "vllm:kv_cache_usage_perc") == 0.25
    states = {s: value(metrics, "headway:blocks", state=s) for s in ("free", "held", "cached")}
    assert states == {"free": 5, "held": 2, "cached": 1}
    metrics.on_stats(stats(2, num_total_blocks=8, num_cached_blocks=3))
    for name in ("vllm:num_requests_running", "vllm:num_requests_waiting"):
        assert value(metrics, name) == 0
    assert value(metrics, "vllm:kv_cache_usage_perc") == 0
    assert value(metrics, "headway:resident_tokens") == 0


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
    ):
        assert b"\n" + name in text, name


def test_length_buckets_stay_within_the_context() -> None:
    assert length_buckets(100) == (1, 2, 5, 10, 20, 50, 100)
    assert length_buckets(120)[-1] == 100
