"""What the server's own /metrics say of a load: vLLM's histograms, before and after."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from headway.bench.server import get
from headway.bench.target import Target
from headway.insight.doctor.page import read_page

# Ours by vLLM's. Of the last, older servers have another name.
HISTOGRAMS = {
    "ttft": ("vllm:time_to_first_token_seconds",),
    "itl": ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    "e2el": ("vllm:e2e_request_latency_seconds",),
}


@dataclass(frozen=True, slots=True)
class Histogram:
    """`counts`: how many values were at most each bound, which ascend to infinity; seconds."""

    counts: tuple[tuple[float, float], ...]
    total_s: float

    @property
    def count(self) -> float:
        return self.counts[-1][1]

    @property
    def mean_s(self) -> float:
        return self.total_s / self.count if self.count else math.nan

    def between_s(self, percent: float) -> tuple[float, float]:
        """The bounds of the bucket in which this percentile lies."""
        low = 0.0
        for bound, count in self.counts:
            if count >= self.count * percent / 100:
                return low, bound
            low = bound
        return low, math.inf

    def since(self, before: Histogram) -> Histogram | None:
        """None where the server has started again meanwhile."""
        was = dict(before.counts)
        counts = tuple((bound, count - was.get(bound, 0.0)) for bound, count in self.counts)
        if any(count < 0 for _, count in counts):
            return None
        return Histogram(counts, self.total_s - before.total_s)


def read_histograms(target: Target, headers: Mapping[str, str]) -> dict[str, Histogram]:
    """Those that are there, summed over models and engines; none where there are no metrics."""
    try:
        status, body = get(target, "/metrics", headers)
        return parse_histograms(body.decode()) if status == 200 else {}
    except ValueError:  # nobody answers, not text, or not metrics
        return {}


def parse_histograms(text: str) -> dict[str, Histogram]:
    """Raises ValueError for what is no page of metrics."""
    page = read_page(text)
    found: dict[str, Histogram] = {}
    for ours, names in HISTOGRAMS.items():
        for name in names:
            counts: dict[float, float] = {}
            for sample in page.named(f"{name}_bucket"):
                bound = float(sample.labels.get("le", "nan"))
                counts[bound] = counts.get(bound, 0.0) + sample.value
            totals = [sample.value for sample in page.named(f"{name}_sum")]
            if math.inf in counts and totals:
                found.setdefault(ours, Histogram(tuple(sorted(counts.items())), sum(totals)))
    return found


def since(before: Mapping[str, Histogram], after: Mapping[str, Histogram]) -> dict[str, Histogram]:
    """What came between; of both, and with a value."""
    grown = {name: after[name].since(before[name]) for name in after if name in before}
    return {name: one for name, one in grown.items() if one is not None and one.count}
