"""How metrics are made: the two labels that all have, every label value there from the start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

ENGINE = "0"


class Families:
    """A registry, and metrics in it that carry `model_name` and `engine`.

    `bounds` are the upper bounds of histograms by family of buckets.
    """

    def __init__(self, model_name: str, bounds: Mapping[str, tuple[float, ...]]) -> None:
        self.registry = CollectorRegistry()
        self._labels = {"model_name": model_name, "engine": ENGINE}
        self._bounds = bounds
        self._by_name: dict[str, Gauge | Histogram] = {}

    def gauge(self, name: str, text: str) -> Gauge:
        gauge = Gauge(name, text, list(self._labels), registry=self.registry)
        self._by_name[name] = gauge
        return gauge.labels(**self._labels)

    def gauges(self, name: str, text: str, label: str, values: Iterable[str]) -> dict[str, Gauge]:
        """One for every value of `label`."""
        gauge = Gauge(name, text, [*self._labels, label], registry=self.registry)
        return {value: gauge.labels(**self._labels, **{label: value}) for value in values}

    def counter(self, name: str, text: str) -> Counter:
        counter = Counter(name, text, list(self._labels), registry=self.registry)
        return counter.labels(**self._labels)

    def counters(
        self, name: str, text: str, label: str, values: Iterable[str]
    ) -> dict[str, Counter]:
        """One for every value of `label`: a counter that is absent is not zero."""
        counter = Counter(name, text, [*self._labels, label], registry=self.registry)
        return {value: counter.labels(**self._labels, **{label: value}) for value in values}

    def histogram(self, name: str, text: str, family: str) -> Histogram:
        labels = list(self._labels)
        bounds = self._bounds[family]
        histogram = Histogram(name, text, labels, buckets=bounds, registry=self.registry)
        self._by_name[name] = histogram
        return histogram.labels(**self._labels)

    def alias(self, former: str, name: str) -> None:
        """Show the gauge or histogram `name` under a former name of vLLM's as well."""
        self.registry.register(_Alias(self._by_name[name], name, former))


class _Alias(Collector):
    """The samples of a metric under another name, made when they are asked for."""

    def __init__(self, metric: Gauge | Histogram, name: str, former: str) -> None:
        self._metric = metric
        self._name = name
        self._former = former

    def describe(self) -> list[Metric]:
        return list(self.collect())

    def collect(self) -> Iterator[Metric]:
        for metric in self._metric.collect():
            copy = Metric(self._former, f"The former name of {self._name}.", metric.type)
            for sample in metric.samples:
                suffix = sample.name.removeprefix(self._name)
                copy.add_sample(self._former + suffix, sample.labels, sample.value)
            yield copy
