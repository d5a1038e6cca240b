"""Twin of `log_softmax`."""

from __future__ import annotations

import numpy as np

from headway.ops.interface import F32


def log_softmax(logits: F32, out: F32) -> None:
    """out = x - max - log(sum(exp(x - max))) for each row of [R, V]; -inf entries stay -inf."""
    largest = logits.max(axis=-1, keepdims=True)
    shifted = logits - np.where(np.isneginf(largest), np.float32(0), largest)
    total = np.exp(shifted).sum(axis=-1, keepdims=True, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_total = np.log(total).astype(np.float32)
        out[...] = np.where(np.isneginf(shifted), shifted, shifted - log_total)
