"""What it means for two results to be close, and to be the same."""

from __future__ import annotations

import numpy as np


def assert_close(result: np.ndarray, expected: np.ndarray, bound: np.ndarray | float) -> None:
    """Within `bound` where finite; infinities and NaN in the same places."""
    assert result.shape == expected.shape
    finite = np.isfinite(expected)
    np.testing.assert_array_equal(result[~finite], expected[~finite])
    error = np.abs(result[finite].astype(np.float64) - expected[finite])
    allowed = np.broadcast_to(bound, expected.shape)[finite]
    assert np.all(error <= allowed), f"error up to {(error / np.maximum(allowed, 1e-300)).max()}x"


def assert_same_bits(result: np.ndarray, expected: np.ndarray) -> None:
    assert result.dtype == expected.dtype
    assert result.shape == expected.shape
    assert result.tobytes() == expected.tobytes()
