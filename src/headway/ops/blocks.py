"""Quantised blocks as files hold them, decoded by the kernels where there are any for them."""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt

from headway.ops.interface import Raw


def decode_blocks(type_name: str, blocks: npt.NDArray[np.uint8], out: Raw) -> bool:
    """blocks uint8 [n, num_bytes] into `out` [n, num_values], float32 or bfloat16 (uint16).

    False, and `out` is as it was, where the kernels do not know the type or were not built.
    """
    if type_name not in _known_types():
        return False
    from headway.ops.cpu import _native

    _native.dequantize(type_name, np.ascontiguousarray(blocks), out)
    return True


@functools.cache
def _known_types() -> frozenset[str]:
    try:
        from headway.ops.cpu import _native
    except ImportError:
        return frozenset()
    return frozenset(_native.block_types())
