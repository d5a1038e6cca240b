"""Presets are complete, have sources, and can be changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.simulator.step_time.hardware import HARDWARE, hardware_named


@pytest.mark.parametrize("hardware", HARDWARE.values(), ids=lambda hardware: hardware.name)
def test_every_preset_says_where_its_figures_are_from(hardware):
    assert set(hardware.sources) == {"peak_flops", "memory"}
    assert all(len(source) > 20 for source in hardware.sources.values())
    assert hardware.flops("bf16") < hardware.peak_flops["bf16"]
    assert hardware.bytes_per_second < hardware.memory_bytes_per_second
    assert hardware.memory_bytes > 10 * 10**9


def test_the_ridge_of_an_h100():
    h100 = hardware_named("H100")
    assert round(h100.peak_flops["bf16"] / h100.memory_bytes_per_second) == 295


def test_names_are_forgiving_and_unknown_ones_are_answered_with_the_list():
    assert hardware_named("RTX 4090") is hardware_named("rtx_4090") is HARDWARE["rtx-4090"]
    with pytest.raises(ValueError, match=r"no hardware is called .tpu.: choose h100-sxm, "):
        hardware_named("tpu")


def test_a_dtype_that_it_does_not_multiply_is_refused():
    with pytest.raises(ValueError, match="a100-80gb-sxm has no peak for products in fp8"):
        hardware_named("a100").flops("fp8")


@pytest.mark.parametrize(
    "change",
    [
        {"compute_efficiency": 0.0},
        {"memory_efficiency": 1.1},
        {"overhead_ns": -1.0},
        {"overhead_ns": float("inf")},
        {"memory_bytes_per_second": 0.0},
    ],
)
def test_impossible_figures_are_refused(change):
    with pytest.raises(ValueError, match="must be"):
        replace(hardware_named("l4"), **change)
