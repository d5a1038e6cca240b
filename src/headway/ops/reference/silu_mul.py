"""Twin of `silu_mul`: the gate of a SwiGLU feed-forward layer (Shazeer, 2020)."""

from __future__ import annotations

import numpy as np

from headway.ops.interface import F32


def silu_mul(gate_up: F32, out: F32) -> None:
    """out [M, F] = silu(gate) * up with silu(g) = g / (1 + exp(-g)); gate_up [M, 2F]: gate, up."""
    gate, up = np.split(gate_up, 2, axis=-1)
    with np.errstate(over="ignore"):
        out[...] = gate / (1.0 + np.exp(-gate)) * up
