"""One fold for all metrics, and their text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import generate_latest

from headway.core.events import Event
from headway.core.request import Request
from headway.insight.metrics.buckets import HTTP, bounds_by_family
from headway.insight.metrics.door import DoorMetrics
from headway.insight.metrics.families import Families
from headway.insight.metrics.sequences import SequenceMetrics
from headway.insight.metrics.state import EngineMetrics, StateMetrics, Stats, StepMetrics

# Whatever a scraper prefers: in the client's OpenMetrics text `vllm:` becomes `vllm_`, which no
# dashboard knows.
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """A fold: tell it what was submitted, what happened and how things stand. One thread.

    `max_model_len` bounds the buckets of lengths; `custom_buckets` replace the bounds of families
    of histograms (names in buckets.py). `cache_config` is asked for each engine, `is_healthy`
    whenever the metrics are read. Times come with the calls, in nanoseconds of one clock. Raises
    ValueError for bad buckets.
    """

    def __init__(
        self,
        model_name: str,
        *,
        max_model_len: int,
        cache_config: Callable[[], Mapping[str, object]],
        custom_buckets: Mapping[str, Sequence[float]] | None = None,
        is_healthy: Callable[[], bool] = lambda: True,
    ) -> None:
        bounds = bounds_by_family(max_model_len, custom_buckets or {})
        families = Families(model_name, bounds)
        self.registry: CollectorRegistry = families.registry
        self._sequences = SequenceMetrics(families)
        self._state = StateMetrics(families)
        self._steps = StepMetrics(families)
        self._door = DoorMetrics(families, bounds[HTTP])
        self._engine = EngineMetrics(families, cache_config, is_healthy)
        ProcessCollector(registry=self.registry)

    def exposition(self) -> tuple[bytes, str]:
        """The text for Prometheus and its content type."""
        return generate_latest(self.registry), CONTENT_TYPE

    @property
    def num_live(self) -> int:
        """What was submitted and has not ended: 0 at rest, or something leaks."""
        return len(self._sequences)

    def on_submitted(self, request: Request, now_ns: int) -> None:
        self._sequences.on_submitted(request, now_ns)

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        self._door.on_events(events)
        self._steps.add_tokens(self._sequences.on_events(events, now_ns))
        self._steps.on_events(events, now_ns)

    def on_stats(self, stats: Stats) -> None:
        self._state.on_stats(stats)
        self._steps.on_stats(stats)

    def on_refused(self, cause: str) -> None:
        """The API process refused a request; causes are those of door.py and of RefusalCause."""
        self._door.on_refused(cause)

    def on_http(self, method: str, handler: str | None, status: int, duration_s: float) -> None:
        """An HTTP request was answered. `handler`: the route's path, never the client's own, so
        that labels stay few; None where no route fits."""
        self._door.on_http(method, handler, status, duration_s)

    def on_restarted(self) -> None:
        """Another engine is ready; it may have been set up otherwise."""
        self._steps.on_restarted()
        self._engine.on_restarted()
