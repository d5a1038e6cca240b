"""Upper bounds of histograms: vLLM's, so that dashboards keep working."""

from __future__ import annotations

TTFT_BUCKETS = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
ITL_BUCKETS = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
# The bounds below 0.3 s are ours: small models answer faster than vLLM's first bound.
REQUEST_BUCKETS = (
    *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25),
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0),
    *(40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
COUNT_BUCKETS = (1.0, 2.0, 5.0, 10.0, 20.0)
PREEMPTION_BUCKETS = (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0)
ITERATION_BUCKETS = (1.0, *(float(1 << n) for n in range(3, 15)))


def length_buckets(max_tokens: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50 … up to `max_tokens`."""
    bounds: list[float] = []
    power = 1
    while power <= max_tokens:
        bounds += [float(m * power) for m in (1, 2, 5) if m * power <= max_tokens]
        power *= 10
    return tuple(bounds)
