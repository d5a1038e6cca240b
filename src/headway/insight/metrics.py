"""Events folded into Prometheus metrics under vLLM's names and buckets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

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
from headway.core.request import Request
from headway.insight.buckets import (
    COUNT_BUCKETS,
    ITERATION_BUCKETS,
    ITL_BUCKETS,
    PREEMPTION_BUCKETS,
    REQUEST_BUCKETS,
    TTFT_BUCKETS,
    length_buckets,
)

_NS = 1e9


class Stats(Protocol):
    """The state between two steps; `wire.EngineStats` is one."""

    @property
    def step_index(self) -> int: ...
    @property
    def num_running(self) -> int: ...
    @property
    def num_waiting(self) -> int: ...
    @property
    def num_total_blocks(self) -> int: ...
    @property
    def num_held_blocks(self) -> int: ...
    @property
    def num_cached_blocks(self) -> int: ...
    @property
    def num_resident_tokens(self) -> int: ...


@dataclass(slots=True, eq=False)
class _Pending:
    """A request of which some sequence has not ended."""

    request: Request
    num_left: int


@dataclass(slots=True, eq=False)
class _Life:
    """What one sequence has been through; 0 ns: not yet."""

    pending: _Pending
    submitted_ns: int
    admitted_ns: int = 0
    first_token_ns: int = 0
    last_token_ns: int = 0
    num_output_tokens: int = 0
    num_preemptions: int = 0


class Metrics:
    """A fold: tell it what was submitted, what happened and how things stand. One thread.

    `max_model_len` bounds the buckets of lengths. Times come with the calls, in nanoseconds of one
    clock; nothing is read from outside.
    """

    def __init__(
        self, model_name: str, *, max_model_len: int, cache_config: Mapping[str, object]
    ) -> None:
        self.registry = CollectorRegistry()
        self._labels = {"model_name": model_name, "engine": "0"}
        self._pending: dict[str, _Pending] = {}
        self._lives: dict[int, _Life] = {}
        self._step_tokens = 0
        self._step_index = 0
        self._make_gauges()
        self._make_counters()
        self._make_time_histograms()
        self._make_size_histograms(length_buckets(max_model_len))
        labels = {name: str(value) for name, value in cache_config.items()}
        info = Gauge(
            "vllm:cache_config_info",
            "The KV cache as it was set up; always 1.",
            ["engine", *labels],
            registry=self.registry,
        )
        info.labels(engine="0", **labels).set(1)

    def exposition(self) -> tuple[bytes, str]:
        """The text for Prometheus and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE_LATEST

    def on_submitted(self, request: Request, now_ns: int) -> None:
        self._pending[request.request_id] = _Pending(request, request.sampling.n)
        self._params_n.observe(request.sampling.n)
        if request.sampling.max_tokens is not None:
            self._params_max_tokens.observe(request.sampling.max_tokens)

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        for event in events:
            self._fold(event, now_ns)

    def on_stats(self, stats: Stats) -> None:
        self._running.set(stats.num_running)
        self._waiting.set(stats.num_waiting)
        total = stats.num_total_blocks
        self._usage.set(stats.num_held_blocks / total if total else 0.0)
        self._resident_tokens.set(stats.num_resident_tokens)
        free = total - stats.num_held_blocks - stats.num_cached_blocks
        for state, count in (
            ("free", free),
            ("held", stats.num_held_blocks),
            ("cached", stats.num_cached_blocks),
        ):
            self._blocks.labels(state=state, **self._labels).set(count)
        if stats.step_index != self._step_index:
            self._step_index = stats.step_index
            self._iteration_tokens.observe(self._step_tokens)
            self._step_tokens = 0

    def _fold(self, event: Event, now_ns: int) -> None:
        if isinstance(event, Queued):
            self._on_queued(event, now_ns)
            return
        if isinstance(event, Rejected):
            self._pending.pop(event.request_id, None)
            return
        life = self._lives[event.sequence_id]
        match event:
            case Admitted():
                self._on_admitted(life, event, now_ns)
            case Resumed():
                self._recomputed.inc(event.num_recomputed_tokens)
                self._refunded.inc(event.num_cached_tokens)
            case Preempted():
                life.num_preemptions = event.num_preemptions
                self._preemptions.inc()
            case Advanced():
                self._on_advanced(life, len(event.token_ids), now_ns)
            case Retired() | Aborted():
                self._on_ended(life, event, now_ns)

    def _on_queued(self, event: Queued, now_ns: int) -> None:
        pending = self._pending[event.request_id]
        submitted_ns = pending.request.arrival_ns or now_ns
        self._lives[event.sequence_id] = _Life(pending, submitted_ns)

    def _on_admitted(self, life: _Life, event: Admitted, now_ns: int) -> None:
        life.admitted_ns = now_ns
        self._queue_time.observe((now_ns - life.submitted_ns) / _NS)
        self._cache_queries.inc(life.pending.request.num_prompt_tokens)
        self._cache_hits.inc(event.num_cached_tokens)
        self._prompt_tokens_cached.inc(event.num_cached_tokens)

    def _on_advanced(self, life: _Life, num_tokens: int, now_ns: int) -> None:
        if life.first_token_ns == 0:
            life.first_token_ns = now_ns
            self._ttft.observe((now_ns - life.submitted_ns) / _NS)
            num_prompt_tokens = life.pending.request.num_prompt_tokens
            self._prompt_tokens.inc(num_prompt_tokens)
            self._step_tokens += num_prompt_tokens
        else:
            self._itl.observe((now_ns - life.last_token_ns) / _NS)
        life.last_token_ns = now_ns
        life.num_output_tokens += num_tokens
        self._generation_tokens.inc(num_tokens)
        self._step_tokens += num_tokens

    def _on_ended(self, life: _Life, event: Retired | Aborted, now_ns: int) -> None:
        del self._lives[event.sequence_id]
        life.pending.num_left -= 1
        if not life.pending.num_left:
            self._pending.pop(event.request_id, None)
        self._success.labels(finished_reason=event.reason.value, **self._labels).inc()
        self._e2e.observe((now_ns - life.submitted_ns) / _NS)
        self._length_prompt.observe(life.pending.request.num_prompt_tokens)
        self._length_generation.observe(life.num_output_tokens)
        self._request_preemptions.observe(life.num_preemptions)
        if life.first_token_ns:
            self._observe_phases(life)

    def _observe_phases(self, life: _Life) -> None:
        """Only of sequences that got a token, so that the counts of all three agree with TTFT's."""
        decode_s = (life.last_token_ns - life.first_token_ns) / _NS
        self._prefill_time.observe((life.first_token_ns - life.admitted_ns) / _NS)
        self._decode_time.observe(decode_s)
        self._inference_time.observe((life.last_token_ns - life.admitted_ns) / _NS)
        if life.num_output_tokens > 1:
            self._tpot.observe(decode_s / (life.num_output_tokens - 1))

    def _make_gauges(self) -> None:
        self._running = self._gauge("vllm:num_requests_running", "Sequences that have a slot.")
        self._waiting = self._gauge("vllm:num_requests_waiting", "Sequences in the queue.")
        self._usage = self._gauge(
            "vllm:kv_cache_usage_perc",
            "Share of KV blocks held by running sequences, from 0 to 1. Blocks that are kept only "
            "for the prefix cache count as free.",
        )
        self._resident_tokens = self._gauge(
            "headway:resident_tokens", "Tokens whose keys and values running sequences hold."
        )
        self._blocks = Gauge(
            "headway:blocks",
            "KV blocks by state: free, held by a sequence, or free but findable (cached).",
            [*self._labels, "state"],
            registry=self.registry,
        )

    def _make_counters(self) -> None:
        self._preemptions = self._counter("vllm:num_preemptions", "Preemptions.")
        self._prompt_tokens = self._counter(
            "vllm:prompt_tokens", "Prompt tokens of sequences that got a first token."
        )
        self._generation_tokens = self._counter("vllm:generation_tokens", "Output tokens.")
        self._prompt_tokens_cached = self._counter(
            "vllm:prompt_tokens_cached", "Prompt tokens that came from the prefix cache."
        )
        self._cache_queries = self._counter(
            "vllm:prefix_cache_queries", "Tokens looked up in the prefix cache."
        )
        self._cache_hits = self._counter(
            "vllm:prefix_cache_hits", "Tokens found in the prefix cache."
        )
        self._recomputed = self._counter(
            "headway:preemption_recomputed_tokens",
            "Tokens computed again after preemptions, what the prefix cache gave back not counted.",
        )
        self._refunded = self._counter(
            "headway:preemption_refunded_tokens",
            "Tokens lost to preemptions that the prefix cache gave back.",
        )
        self._success = Counter(
            "vllm:request_success",
            "Sequences that ended, by reason.",
            [*self._labels, "finished_reason"],
            registry=self.registry,
        )

    def _make_time_histograms(self) -> None:
        self._ttft = self._histogram(
            "vllm:time_to_first_token_seconds",
            "From arrival to the first token, once for every sequence that got one.",
            TTFT_BUCKETS,
        )
        self._itl = self._histogram(
            "vllm:inter_token_latency_seconds", "Between two tokens of a sequence.", ITL_BUCKETS
        )
        self._tpot = self._histogram(
            "vllm:request_time_per_output_token_seconds",
            "Decode time per token after the first, once per sequence.",
            ITL_BUCKETS,
        )
        self._e2e = self._request_time("vllm:e2e_request_latency_seconds", "Arrival to end.")
        self._queue_time = self._request_time(
            "vllm:request_queue_time_seconds", "Arrival to first admission."
        )
        self._prefill_time = self._request_time(
            "vllm:request_prefill_time_seconds", "First admission to first token."
        )
        self._decode_time = self._request_time(
            "vllm:request_decode_time_seconds", "First token to last token."
        )
        self._inference_time = self._request_time(
            "vllm:request_inference_time_seconds", "First admission to last token."
        )

    def _make_size_histograms(self, lengths: Sequence[float]) -> None:
        self._length_prompt = self._histogram(
            "vllm:request_prompt_tokens", "Prompt tokens of a sequence.", lengths
        )
        self._length_generation = self._histogram(
            "vllm:request_generation_tokens", "Output tokens of a sequence.", lengths
        )
        self._params_max_tokens = self._histogram(
            "vllm:request_params_max_tokens", "max_tokens of a request.", lengths
        )
        self._params_n = self._histogram(
            "vllm:request_params_n", "Choices asked for by a request.", COUNT_BUCKETS
        )
        self._request_preemptions = self._histogram(
            "vllm:request_num_preemptions", "Preemptions of a sequence.", PREEMPTION_BUCKETS
        )
        self._iteration_tokens = self._histogram(
            "vllm:iteration_tokens_total",
            "Tokens of a step: its output tokens and the prompts that it completed.",
            ITERATION_BUCKETS,
        )

    def _gauge(self, name: str, text: str) -> Gauge:
        gauge = Gauge(name, text, list(self._labels), registry=self.registry)
        return gauge.labels(**self._labels)

    def _counter(self, name: str, text: str) -> Counter:
        counter = Counter(name, text, list(self._labels), registry=self.registry)
        return counter.labels(**self._labels)

    def _histogram(self, name: str, text: str, buckets: Iterable[float]) -> Histogram:
        histogram = Histogram(
            name, text, list(self._labels), buckets=tuple(buckets), registry=self.registry
        )
        return histogram.labels(**self._labels)

    def _request_time(self, name: str, text: str) -> Histogram:
        return self._histogram(name, text, REQUEST_BUCKETS)
