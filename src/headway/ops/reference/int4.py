"""Twin of the packing as "int4": numbers of 4 bits, 32 neighbours with a scale and a minimum."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headway.ops.grouped import FORMATS
from headway.ops.interface import F32, GroupedWeight
from headway.ops.reference.linear_int8 import SMALLEST

FORMAT = "int4/group32-minimum"
GROUP = FORMATS[FORMAT].group
WIDTHS = np.arange(13, 17.5, 0.5, dtype=np.float32)  # of a group's range, in steps
FLAT = np.float32(2.0**-40)  # a range below this, of rows scaled to [1, 2), is none
LARGEST_POWER = np.float32(2.0**126)
_ONE, _HALF, _MIDDLE = np.float32(1), np.float32(0.5), np.float32(7.5)

Halves = npt.NDArray[np.float16]


def quantize(rows: F32) -> GroupedWeight:
    """rows [N, K]; scale and minimum of a group are those of the least squared error found."""
    num_rows, width = rows.shape
    factors = _factors(rows)
    is_number = factors > 0  # not NaN
    inverses = np.divide(_ONE, factors, out=np.zeros_like(factors), where=is_number)
    scaled = np.where(is_number[:, None], rows, np.float32(0)) * inverses[:, None]
    groups = FORMATS[FORMAT].groups_of(width)
    scales = np.zeros((num_rows, groups), np.float16)
    minimums = np.zeros((num_rows, groups), np.float16)
    numbers = np.zeros(rows.shape, np.uint8)
    for group in range(groups):
        part = slice(group * GROUP, (group + 1) * GROUP)
        scales[:, group], minimums[:, group], numbers[:, part] = _quantize_group(scaled[:, part])
    return GroupedWeight(FORMAT, numbers, scales, minimums, factors)


def _factors(rows: F32) -> F32:
    """The power of two that brings a row to [1, 2); 0 and NaN for rows of nothing, of no number."""
    largest = np.max(np.abs(rows), axis=1)
    powers = (largest.view(np.uint32) & np.uint32(0x7F800000)).view(np.float32)
    factors = np.minimum(powers, LARGEST_POWER)
    factors[largest < SMALLEST] = 0
    factors[~np.isfinite(largest)] = np.nan
    return factors


def _quantize_group(values: F32) -> tuple[Halves, Halves, npt.NDArray[np.uint8]]:
    least, most = values.min(axis=1), values.max(axis=1)
    middle, span = (least + most) * _HALF, most - least
    centered = values - middle[:, None]
    scale: F32 = np.zeros_like(span)
    minimum: F32 = np.zeros_like(span)
    best: F32 = np.full_like(span, -1)
    for width in WIDTHS:
        found, line_scale, line_minimum = _fit(centered, _inverse(width, span, FLAT))
        is_better = found > best
        best = np.where(is_better, found, best)
        scale = np.where(is_better, line_scale, scale)
        minimum = np.where(is_better, line_minimum, minimum)
    halves, lowest = scale.astype(np.float16), (minimum + middle).astype(np.float16)
    wide = halves.astype(np.float32)
    inverse = _inverse(_ONE, wide, np.float32(0))
    offset = lowest.astype(np.float32) - middle
    numbers = _numbers((centered - offset[:, None]) * inverse[:, None])
    return halves, lowest, numbers.astype(np.uint8)


def _fit(values: F32, inverse_step: F32) -> tuple[F32, F32, F32]:
    """What the best line through (number, value) explains, its slope and its start."""
    numbers = _numbers(values * inverse_step[:, None] + _MIDDLE)
    total, squares, products = (_sum(v) for v in (numbers, numbers * numbers, values * numbers))
    of_values = _sum(values)
    count: F32 = np.full_like(of_values, values.shape[1])
    spread = count * squares - total * total
    scale: F32 = (count * products - of_values * total) * _inverse(_ONE, spread, np.float32(0))
    minimum: F32 = np.divide(of_values - scale * total, count)
    explained: F32 = scale * products + minimum * of_values
    return explained, scale, minimum


def _numbers(values: F32) -> F32:
    return np.clip(np.rint(values), np.float32(0), np.float32(15))


def _inverse(numerator: np.float32, values: F32, least: np.float32) -> F32:
    """numerator / values, and 0 where they are no more than `least`."""
    zeros = np.zeros_like(values)
    return np.divide(numerator, values, out=zeros, where=values > least)


def _sum(values: F32) -> F32:
    """Along K, in order: one rounding for each, as in the kernel."""
    total = np.zeros(len(values), np.float32)
    for column in values.T:
        total = total + column
    return total
