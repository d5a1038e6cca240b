"""Twin of `linear` for weights with a scale for each group: sums exact, scales in one order."""

from __future__ import annotations

import numpy as np

from headway.ops.grouped import FORMATS, GroupFormat
from headway.ops.interface import F32, GroupedWeight, PackedLinear
from headway.ops.reference.linear_int8 import GROUP as X_GROUP
from headway.ops.reference.linear_int8 import quantize_rows


def linear(x: F32, weight: PackedLinear, out: F32, *, accumulate: bool = False) -> None:
    """x [M, K], out [M, N]; each 64 elements of a row of x have a scale of their own."""
    assert weight.grouped is not None
    for row, result in zip(x, out, strict=True):
        with np.errstate(over="ignore", invalid="ignore"):  # inf and NaN, as in the kernels
            product = _sum_of_groups(weight.grouped, row) * weight.grouped.factors
        if weight.bias is not None:
            product += weight.bias
        result[:] = result + product if accumulate else product


def _sum_of_groups(weight: GroupedWeight, row: F32) -> F32:
    format = FORMATS[weight.format]
    total = np.zeros(len(weight.numbers), np.float32)
    for start in range(0, len(row), X_GROUP):
        whole, scale = quantize_rows(row[None, start : start + X_GROUP])
        for first in range(start, min(start + X_GROUP, len(row)), format.group):
            x = whole[0, first - start :][: format.group].astype(np.int32)
            total = _add_group(total, weight, format, first, x, scale[0])
    return total


def _add_group(
    total: F32,
    weight: GroupedWeight,
    format: GroupFormat,
    first: int,
    x: np.ndarray,
    x_scale: np.float32,
) -> F32:
    numbers = weight.numbers[:, first : first + format.group].astype(np.int32) - format.zero
    group = first // format.group
    scales = weight.scales[:, group].astype(np.float32)
    total = total + (numbers @ x).astype(np.float32) * scales * x_scale
    if weight.minimums is not None:
        x_sum = np.float32(x.sum()) * x_scale
        total = total + weight.minimums[:, group].astype(np.float32) * x_sum
    return total
