"""Functions whose bits are the same everywhere, and near enough to the true values."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.simulator.workload.exact_math import exp, exponentials, log, normals


@given(st.floats(min_value=1e-300, max_value=1e300))
def test_logarithms(x: float) -> None:
    assert log(np.array([x]))[0] == pytest.approx(math.log(x), rel=1e-15, abs=1e-16)


@given(st.floats(min_value=-689, max_value=700))
def test_exponentials_of_numbers(x: float) -> None:
    assert exp(np.array([x]))[0] == pytest.approx(math.exp(x), rel=1e-15)


def test_what_is_too_small_is_nothing() -> None:
    assert exp(np.array([-691.0, -1e6])).tolist() == [0.0, 0.0]


def test_the_same_bits_everywhere() -> None:
    logs = log(np.array([0.1, 0.75, 3.0, 1e-12, 1e9]))
    assert [value.hex() for value in logs.tolist()] == [
        "-0x1.26bb1bbb55515p+1",
        "-0x1.269621134db92p-2",
        "0x1.193ea7aad030bp+0",
        "-0x1.ba18a998fffa0p+4",
        "0x1.4b927f32bffb8p+4",
    ]
    powers = exp(np.array([-20.5, -1.0, 0.3, 5.0]))
    assert [value.hex() for value in powers.tolist()] == [
        "0x1.57a3afeed00acp-30",
        "0x1.78b56362cef38p-2",
        "0x1.599058c8c1a96p+0",
        "0x1.28d389970338fp+7",
    ]


def test_deviates_have_the_moments_of_their_laws() -> None:
    uniforms = np.random.Generator(np.random.PCG64(1)).random((2, 200_000))
    waits = exponentials(uniforms[0])
    assert waits.min() >= 0
    assert (waits.mean(), waits.std()) == pytest.approx((1, 1), rel=0.01)
    deviates, valid = normals(*uniforms)
    assert valid.mean() == pytest.approx(math.pi / 4, rel=0.01)
    kept = deviates[valid]
    assert (kept.mean(), kept.std()) == pytest.approx((0, 1), abs=0.01)
    assert (np.abs(kept) > 1.959964).mean() == pytest.approx(0.05, rel=0.03)
