"""Twin of the int8 `linear`: rows scaled to [-127, 127], whole numbers summed exactly."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headway.ops.interface import F32, PackedLinear

LARGEST = np.float32(127)
SMALLEST = np.float32(2.0**-100)  # a row with nothing larger counts as zeros


def quantize_rows(rows: F32) -> tuple[npt.NDArray[np.int8], F32]:
    """int8 [N, K] and scales [N] with rows about whole * scale; rounded to nearest, ties to even.

    A row of zeros has the scale 0; a row with an infinity or a NaN has zeros and the scale NaN.
    """
    whole = np.zeros(rows.shape, np.int8)
    scales = np.zeros(len(rows), np.float32)
    for index, row in enumerate(rows):
        largest = np.max(np.abs(row))
        if not np.isfinite(largest):
            scales[index] = np.nan
        elif largest >= SMALLEST:
            whole[index] = np.rint(row * (LARGEST / largest))
            scales[index] = largest / LARGEST
    return whole, scales


def linear(x: F32, weight: PackedLinear, out: F32, *, accumulate: bool = False) -> None:
    """x [M, K], weight [N, K] int8, out [M, N]; each row of x is quantised by itself."""
    matrix = weight.data.astype(np.int32)
    whole, scales = quantize_rows(x)
    for row, scale, result in zip(whole, scales, out, strict=True):
        sums = matrix @ row.astype(np.int32)
        with np.errstate(over="ignore"):  # beyond float32 becomes inf, as in the kernels
            product = sums.astype(np.float32) * scale * weight.scales
        if weight.bias is not None:
            product += weight.bias
        result[:] = result + product if accumulate else product
