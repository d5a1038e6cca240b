"""How things stand between two steps: gauges, and what a step cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from prometheus_client import Gauge

from headway.core.events import Advanced, Event, Retired
from headway.core.step import Blocker
from headway.insight.metrics.buckets import ITERATION_TOKENS, STEP
from headway.insight.metrics.families import ENGINE, Families

_NS = 1e9
CAPACITY, DEFERRED = "capacity", "deferred"


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
    @property
    def waiting_reasons(self) -> Mapping[str, int]: ...
    @property
    def num_backlog_tokens(self) -> int: ...


class StateMetrics:
    """Gauges of the latest `Stats`."""

    def __init__(self, families: Families) -> None:
        self._running = families.gauge("vllm:num_requests_running", "Sequences that have a slot.")
        self._waiting = families.gauge("vllm:num_requests_waiting", "Sequences in the queue.")
        self._by_cause = families.gauges(
            "vllm:num_requests_waiting_by_reason",
            "Sequences in the queue: for want of capacity, or deferred by what bars only some "
            "(an adapter, a grammar, a tenant's share). Both together are num_requests_waiting.",
            "reason",
            (CAPACITY, DEFERRED),
        )
        self._by_blocker = families.gauges(
            "headway:waiting_requests",
            "Sequences in the queue by what the latest step lacked to admit them.",
            "reason",
            [blocker.value for blocker in Blocker],
        )
        self._usage = families.gauge(
            "vllm:kv_cache_usage_perc",
            "Share of KV blocks held by running sequences, from 0 to 1. Blocks that are kept only "
            "for the prefix cache count as free: headway:blocks shows all three.",
        )
        families.alias("vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc")
        self._blocks = families.gauges(
            "headway:blocks",
            "KV blocks by state: free, held by a sequence, or free but findable (cached).",
            "state",
            ("free", "held", "cached"),
        )
        self._resident = families.gauge(
            "headway:resident_tokens",
            "Tokens whose keys and values running sequences hold; a shared one counts for each.",
        )
        self._backlog = families.gauge(
            "headway:backlog_tokens",
            "Known tokens still to compute, of the waiting and the running.",
        )

    def on_stats(self, stats: Stats) -> None:
        self._running.set(stats.num_running)
        self._set_waiting(stats.num_waiting, stats.waiting_reasons)
        total = stats.num_total_blocks
        self._usage.set(stats.num_held_blocks / total if total else 0.0)
        self._blocks["free"].set(total - stats.num_held_blocks - stats.num_cached_blocks)
        self._blocks["held"].set(stats.num_held_blocks)
        self._blocks["cached"].set(stats.num_cached_blocks)
        self._resident.set(stats.num_resident_tokens)
        self._backlog.set(stats.num_backlog_tokens)

    def _set_waiting(self, num_waiting: int, reasons: Mapping[str, int]) -> None:
        self._waiting.set(num_waiting)
        for blocker in Blocker:
            self._by_blocker[blocker.value].set(reasons.get(blocker.value, 0))
        barred = sum(reasons.get(blocker.value, 0) for blocker in Blocker if blocker.bars_one)
        deferred = min(barred, num_waiting)  # some may have been withdrawn since the latest step
        self._by_cause[DEFERRED].set(deferred)
        # Whoever came since the latest step waits for the next one: nothing defers it.
        self._by_cause[CAPACITY].set(num_waiting - deferred)


class StepMetrics:
    """Counts steps and what they yielded, from the turns that the engine tells of: one before a
    step where somebody came, left or was admitted, and one after it, with or without events.
    """

    def __init__(self, families: Families) -> None:
        self._tokens = families.histogram(
            "vllm:iteration_tokens_total",
            "Tokens of a step: its output tokens and the prompts that it completed. A histogram; "
            "its count is the number of steps.",
            ITERATION_TOKENS,
        )
        self._seconds = families.histogram(
            "headway:step_seconds", "Wall time of a step with the loop around it.", STEP
        )
        self._num_done = 0
        self._num_tokens = 0
        self._since_ns = 0
        self._now_ns = 0
        self._is_after_step = False

    def add_tokens(self, num_tokens: int) -> None:
        self._num_tokens += num_tokens

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        is_outcome = any(isinstance(event, Advanced | Retired) for event in events)
        self._is_after_step = is_outcome or not events
        self._now_ns = now_ns

    def on_stats(self, stats: Stats) -> None:
        if self._is_after_step and stats.step_index != self._num_done:
            self._tokens.observe(self._num_tokens)
            self._seconds.observe((self._now_ns - self._since_ns) / _NS)
            self._num_tokens = 0
        if self._is_after_step or not stats.num_running:  # else the step is about to run
            self._num_done = stats.step_index
        self._since_ns = self._now_ns

    def on_restarted(self) -> None:
        """Another engine counts from 0."""
        self._num_done = self._num_tokens = 0


class EngineMetrics:
    """Whether there is an engine, how it was set up, and how often it had to be started again."""

    def __init__(
        self,
        families: Families,
        cache_config: Callable[[], Mapping[str, object]],
        is_healthy: Callable[[], bool],
    ) -> None:
        healthy = families.gauge(
            "vllm:engine_healthy", "1 while steps advance or nothing waits, else 0, as /health."
        )
        healthy.set_function(lambda: float(is_healthy()))
        asleep = families.gauges(
            "vllm:engine_sleep_state",
            "awake is 1: the engine never sleeps.",
            "sleep_state",
            ("awake", "weights_offloaded", "discard_all"),
        )
        asleep["awake"].set(1)
        self._restarts = families.counter(
            "headway:engine_restarts", "Times that an engine that had died was started again."
        )
        self._registry = families.registry
        self._cache_config = cache_config
        self._info: Gauge | None = None
        self._show_cache_config()

    def on_restarted(self) -> None:
        self._restarts.inc()
        self._show_cache_config()

    def _show_cache_config(self) -> None:
        """`vllm:cache_config_info` has no model_name, as at vLLM."""
        if self._info is not None:
            self._registry.unregister(self._info)
        labels = {name: str(value) for name, value in self._cache_config().items()}
        self._info = Gauge(
            "vllm:cache_config_info",
            "The KV cache as it was set up; always 1.",
            ["engine", *labels],
            registry=self._registry,
        )
        self._info.labels(engine=ENGINE, **labels).set(1)
