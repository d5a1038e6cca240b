"""Twin of the int8 `linear`: whole numbers summed exactly, scales applied in one order."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headway.ops.interface import F32, PackedLinear

GROUP = 64  # elements of a row of x that share a scale
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
    """x [M, K], weight [N, K] int8, out [M, N]; each group of a row of x has a scale of its own."""
    assert weight.scales is not None
    matrix = weight.data.astype(np.int32)
    for row, result in zip(x, out, strict=True):
        with np.errstate(over="ignore"):  # beyond float32 becomes inf, as in the kernels
            product = _sum_of_groups(matrix, row) * weight.scales
        if weight.bias is not None:
            product += weight.bias
        result[:] = result + product if accumulate else product


def _sum_of_groups(matrix: npt.NDArray[np.int32], row: F32) -> F32:
    total = np.zeros(len(matrix), np.float32)
    for start in range(0, len(row), GROUP):
        whole, scale = quantize_rows(row[None, start : start + GROUP])
        sums = matrix[:, start : start + GROUP] @ whole[0].astype(np.int32)
        total += sums.astype(np.float32) * scale[0]
    return total
