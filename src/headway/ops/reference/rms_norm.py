"""Twin of `rms_norm`: root mean square layer normalisation (Zhang and Sennrich, 2019)."""

from __future__ import annotations

import numpy as np

from headway.ops.interface import F32


def rms_norm(x: F32, weight: F32, eps: float, out: F32) -> None:
    """out = x / sqrt(mean(x^2) + eps) * weight over the last axis; x, out [..., D], weight [D]."""
    mean_square = np.mean(np.square(x), axis=-1, keepdims=True)
    out[...] = x * (1.0 / np.sqrt(mean_square + np.float32(eps))) * weight
