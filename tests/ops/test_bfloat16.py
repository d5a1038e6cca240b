"""bfloat16 rounds to nearest, ties to even, and keeps what is special."""

from __future__ import annotations

import numpy as np
import pytest

from headway.ops.bfloat16 import from_bf16, round_to_bf16, to_bf16

BF16_STEP = 2.0**-7  # between 1 and 2


@pytest.mark.parametrize(
    ("value", "nearest"),
    [
        (1.0, 1.0),
        (1 + BF16_STEP / 2, 1.0),  # a tie, to even
        (1 + 3 * BF16_STEP / 2, 1 + 2 * BF16_STEP),  # a tie, to even
        (1 + BF16_STEP * 0.51, 1 + BF16_STEP),
        (-1 - BF16_STEP * 0.49, -1.0),
        (3.4e38, np.inf),
        (-np.inf, -np.inf),
        (-0.0, -0.0),
        (1e-45, 0.0),
    ],
)
def test_nearest(value, nearest):
    rounded = round_to_bf16(np.float32(value))
    assert rounded == nearest
    assert np.signbit(rounded) == np.signbit(np.float32(nearest))


def test_every_bfloat16_survives_the_round_trip():
    every = np.arange(2**16, dtype=np.uint16)
    there_and_back = to_bf16(from_bf16(every))
    numbers = ~np.isnan(from_bf16(every))
    np.testing.assert_array_equal(there_and_back[numbers], every[numbers])
    assert np.isnan(from_bf16(there_and_back[~numbers])).all()


def test_nan_with_a_small_payload_stays_nan():
    assert np.isnan(from_bf16(to_bf16(np.array([0x7F800001], np.uint32).view(np.float32)))).all()


def test_kernels_round_like_numpy(ops, rng):
    bits = rng.integers(0, 2**32, 5001, dtype=np.uint32)
    special = np.array([np.nan, np.inf, -0.0], np.float32)
    floats = np.concatenate([bits.view(np.float32), special])
    narrow, wide = np.empty(len(floats), np.uint16), np.empty(len(floats), np.float32)
    ops._native.narrow(floats, narrow)
    np.testing.assert_array_equal(narrow, to_bf16(floats))
    ops._native.widen(narrow, wide)
    np.testing.assert_array_equal(wide, from_bf16(narrow))
