"""bfloat16 in numpy: the upper half of a float32, kept in uint16 arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def to_bf16(values: npt.ArrayLike) -> npt.NDArray[np.uint16]:
    """Round float32 to bfloat16, to nearest, ties to even. NaN stays NaN; overflow becomes inf."""
    floats = np.asarray(values, dtype=np.float32, order="C")
    bits = floats.view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1)))) >> np.uint32(
        16
    )
    quiet_nan = (bits >> np.uint32(16)) | np.uint32(0x0040)
    return np.where(np.isnan(floats), quiet_nan, rounded).astype(np.uint16)


def from_bf16(values: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Widen bfloat16 (uint16) to float32, exactly."""
    return (np.asarray(values, dtype=np.uint16).astype(np.uint32) << np.uint32(16)).view(np.float32)


def round_to_bf16(values: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """The nearest bfloat16 of each value, as float32."""
    return from_bf16(to_bf16(values))


def as_float32(values: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """float32 arrays as they are, uint16 arrays widened from bfloat16."""
    return from_bf16(values) if values.dtype == np.uint16 else values.astype(np.float32, copy=False)
