"""Twin of `argmax`."""

from __future__ import annotations

import numpy as np

from headway.ops.interface import F32, I32


def argmax(logits: F32, out: I32) -> None:
    """Index of the largest value of each row, the lowest on a tie; NaN counts as -inf."""
    out[:] = np.where(np.isnan(logits), -np.inf, logits).argmax(axis=-1)
