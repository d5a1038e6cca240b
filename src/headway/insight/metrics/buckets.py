"""Upper bounds of histograms, by vLLM's families of buckets and with its bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

REQUEST_LATENCY = "request_latency"
TIME_TO_FIRST_TOKEN = "time_to_first_token"
INTER_TOKEN_LATENCY = "inter_token_latency"
ITERATION_TOKENS = "iteration_tokens"
REQUEST_PARAMS_N = "request_params_n"
REQUEST_TOKENS = "request_tokens"
PREEMPTIONS = "preemptions"
STEP = "step"
HTTP = "http"

_LATENCY_BOUNDS: dict[str, tuple[float, ...]] = {
    # Those below 0.3 s are ours: small models answer faster than vLLM's first bound.
    REQUEST_LATENCY: (
        *(0.005, 0.01, 0.025, 0.05, 0.1, 0.25),
        *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0),
        *(40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
    ),
    TIME_TO_FIRST_TOKEN: (
        *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
        *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
    ),
    INTER_TOKEN_LATENCY: (
        *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
        *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
    ),
    ITERATION_TOKENS: (1.0, *(float(1 << n) for n in range(3, 15))),
    REQUEST_PARAMS_N: (1.0, 2.0, 5.0, 10.0, 20.0),
    PREEMPTIONS: (1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0),
    STEP: (
        *(0.001, 0.002, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5),
        *(1.0, 2.0, 5.0, 10.0, 30.0),
    ),
    HTTP: (0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
}
_FAMILIES = (
    *(REQUEST_LATENCY, TIME_TO_FIRST_TOKEN, INTER_TOKEN_LATENCY, ITERATION_TOKENS),
    *(REQUEST_PARAMS_N, REQUEST_TOKENS),
)
# vLLM's family of histograms that only --kv-cache-metrics turns on; there are none here.
_WITHOUT_HISTOGRAMS = ("kv_cache_residency",)


def bounds_by_family(
    max_model_len: int, custom: Mapping[str, Sequence[float]]
) -> dict[str, tuple[float, ...]]:
    """Ours, and `custom` in their place. Raises ValueError, with a sentence, for bad bounds."""
    check_buckets(custom)
    ours = {**_LATENCY_BOUNDS, REQUEST_TOKENS: length_bounds(max_model_len)}
    return ours | {family: tuple(map(float, bounds)) for family, bounds in custom.items()}


def check_buckets(custom: Mapping[str, Sequence[float]]) -> None:
    """Raises ValueError, with a sentence, for an unknown family or bounds that do not rise."""
    for family, bounds in custom.items():
        _check(family, bounds)


def length_bounds(max_tokens: int) -> tuple[float, ...]:
    """1, 2, 5, 10, 20, 50 … up to `max_tokens`."""
    bounds: list[float] = []
    power = 1
    while power <= max_tokens:
        bounds += [float(m * power) for m in (1, 2, 5) if m * power <= max_tokens]
        power *= 10
    return tuple(bounds)


def _check(family: str, bounds: Sequence[float]) -> None:
    if family not in (*_FAMILIES, *_WITHOUT_HISTOGRAMS):
        raise ValueError(
            f"custom histogram buckets: {family!r} is no family of buckets; "
            f"there are {', '.join(_FAMILIES)}"
        )
    if not _rise(bounds):
        raise ValueError(
            f"custom histogram buckets: the bounds of {family} must be numbers above 0, "
            f"each larger than the one before, got {bounds!r}"
        )


def _rise(bounds: Sequence[float]) -> bool:
    if isinstance(bounds, str) or not isinstance(bounds, Sequence) or not bounds:
        return False
    if any(isinstance(b, bool) or not isinstance(b, int | float) for b in bounds):
        return False
    pairs = zip((0.0, *bounds), bounds, strict=False)
    return all(math.isfinite(b) and a < b for a, b in pairs)
