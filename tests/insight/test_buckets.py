"""Bounds that dashboards have."""

from __future__ import annotations

from headway.insight.metrics.buckets import bounds_by_family, length_bounds


def test_lengths_stay_within_the_context() -> None:
    assert length_bounds(100) == (1, 2, 5, 10, 20, 50, 100)
    assert length_bounds(120)[-1] == 100


def test_request_latency_goes_below_the_first_bound_of_vllm_and_has_all_of_its_own() -> None:
    bounds = bounds_by_family(100, {})["request_latency"]
    assert bounds[:6] == (0.005, 0.01, 0.025, 0.05, 0.1, 0.25)
    assert bounds[6] == 0.3
    assert list(bounds) == sorted(set(bounds))


def test_a_family_without_histograms_is_known() -> None:
    assert bounds_by_family(100, {"kv_cache_residency": [1.0]})["request_params_n"][-1] == 20
