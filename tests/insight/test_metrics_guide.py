"""The guide names every metric, with its type and labels, and none that is not there."""

from __future__ import annotations

from headway.core.config import SchedulerConfig
from headway.insight.metrics.buckets import bounds_by_family
from tests.insight.guide import GUIDE, rows
from tests.insight.histories import Happening, World
from tests.insight.readings import LABELS, new_metrics

COLUMNS = ("block_size", "num_gpu_blocks", "cache_dtype", "enable_prefix_caching")
COLUMNS += ("gpu_memory_utilization", "kv_cache_size_tokens", "kv_cache_max_concurrency")
COLUMNS += ("kv_policy", "max_num_seqs", "max_num_batched_tokens", "max_model_len")


def exposed() -> dict[str, tuple[str, frozenset[str]]]:
    """Type and labels, but for the usual ones, by name on the wire."""
    metrics = new_metrics(cache_config=lambda: dict.fromkeys(COLUMNS, 1))
    metrics.on_http("POST", "/v1/completions", 200, 0.1)
    world = World([metrics], SchedulerConfig(max_model_len=44))
    world.play([Happening(at_ns=10**9)])
    found = {}
    for family in metrics.registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = {label for sample in family.samples for label in sample.labels}
        found[name] = (family.type, frozenset(labels - {*LABELS, "le"}))
    return found


def documented() -> dict[str, tuple[str, frozenset[str]]]:
    found = {}
    for name, kind, labels, _ in rows("All of them"):
        words = labels.replace("∅", "").split("(")[0].replace(",", " ").split()
        found[name.strip("`")] = (kind, frozenset(words))
    return found


def test_the_guide_and_the_registry_agree() -> None:
    assert documented() == exposed()


def test_the_guide_names_the_families_of_buckets() -> None:
    text = GUIDE.read_text()
    for family in ("request_latency", "time_to_first_token", "inter_token_latency"):
        assert family in bounds_by_family(100, {})
        assert family in text
