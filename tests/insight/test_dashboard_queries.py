"""The queries of vLLM's dashboards find their metrics, labels and data in ours."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from headway.core.config import SchedulerConfig
from tests.insight.guide import rows
from tests.insight.histories import MS, Happening, World
from tests.insight.readings import new_metrics

QUERIES = [
    (f"{board}: {panel}", query.strip("`")) for board, panel, query, _ in rows("vLLM's dashboards")
]
SELECTOR = re.compile(r"((?:vllm:|http_)\w+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)(=~?)"([^"]*)"')
GROUPING = re.compile(r"by ?\(([^)]*)\)")
OF_THE_SCRAPER = ("job", "instance")
# What a run without a fault or a barred sequence has at zero, and an idle engine.
MAY_BE_ZERO = ("vllm:num_requests", "vllm:kv_cache_usage_perc")


@pytest.fixture(scope="module")
def samples() -> dict[str, list[Sample]]:
    metrics = new_metrics()
    config = SchedulerConfig(
        max_num_seqs=3, max_num_batched_tokens=8, block_size=2, max_model_len=44
    )
    arrivals = [
        Happening(at_ns=(1000 + 2 * i) * MS, num_prompt_tokens=9, max_tokens=12) for i in range(8)
    ]
    World([metrics], config, failing_steps={9}).play(arrivals)
    metrics.on_http("POST", "/v1/completions", 200, 0.1)
    metrics.on_http("POST", "/v1/completions", 503, 0.1)
    found: dict[str, list[Sample]] = defaultdict(list)
    for family in text_string_to_metric_families(metrics.exposition()[0].decode()):
        for sample in family.samples:
            found[sample.name].append(sample)
    return found


def fits(sample: Sample, matchers: str | None) -> bool:
    for label, operator, wanted in MATCHER.findall(matchers or ""):
        if label in OF_THE_SCRAPER:
            continue
        if label not in sample.labels:
            return False
        if operator == "=" and not wanted.startswith("$") and sample.labels[label] != wanted:
            return False
    return True


@pytest.mark.parametrize(("panel", "query"), QUERIES, ids=[panel for panel, _ in QUERIES])
def test_a_query_finds_data(panel: str, query: str, samples: dict[str, list[Sample]]) -> None:
    selectors = SELECTOR.findall(query)
    assert selectors
    for name, matchers in selectors:
        selected = [sample for sample in samples[name] if fits(sample, matchers)]
        assert selected, f"{name}{{{matchers}}} selects nothing"
        if not name.startswith(MAY_BE_ZERO):
            assert any(sample.value > 0 for sample in selected), f"{name}{{{matchers}}} is zero"
        for labels in GROUPING.findall(query):
            wanted = {label.strip() for label in labels.split(",")} - {"le"}
            assert wanted <= set(selected[0].labels)


def test_there_are_queries_of_each_dashboard() -> None:
    boards = {panel.split(":")[0] for panel, _ in QUERIES}
    assert boards == {
        "grafana",
        "performance_statistics",
        "query_statistics",
        "vllm_overview",
        "vllm_service_status",
    }
