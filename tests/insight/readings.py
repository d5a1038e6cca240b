"""Reading metrics in tests."""

from __future__ import annotations

from typing import Any

from prometheus_client.samples import Sample

from headway.insight.metrics import Metrics
from headway.wire import EngineStats

LABELS = {"model_name": "m", "engine": "0"}


def new_metrics(**more: Any) -> Metrics:
    config = {"block_size": 16, "cache_dtype": "f32"}
    return Metrics("m", max_model_len=100, **{"cache_config": lambda: config, **more})


def stats(step_index: int = 0, **values: Any) -> EngineStats:
    names = ("num_running", "num_waiting", "num_total_blocks", "num_held_blocks")
    names += ("num_cached_blocks", "num_resident_tokens")
    return EngineStats(step_index=step_index, **{**dict.fromkeys(names, 0), **values})


def value(metrics: Metrics, name: str, **labels: str) -> float:
    wanted = {**LABELS, **labels}
    [found] = [sample.value for sample in samples(metrics, name) if sample.labels == wanted]
    return found


def total(metrics: Metrics, name: str) -> float:
    """Of all label values together."""
    return sum(sample.value for sample in samples(metrics, name))


def samples(metrics: Metrics, name: str) -> list[Sample]:
    families = metrics.registry.restricted_registry([name]).collect()
    found = [s for family in families for s in family.samples if s.name == name]
    assert found, f"no sample {name}"
    return found
