"""Events and the engine's state folded into Prometheus metrics under vLLM's names."""

from headway.insight.metrics.fold import Metrics

__all__ = ["Metrics"]
