"""Twin of the packing as "int4": numbers of 4 bits, 32 neighbours with a scale and a minimum."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headway.ops.interface import F32
from headway.ops.reference.linear_int8 import LARGEST, SMALLEST

GROUP = 32
WIDTHS = np.arange(13, 17.5, 0.5, dtype=np.float32)  # of a group's range, in steps
FLAT = np.float32(2.0**-30)  # a range below this, of rows brought to [-127, 127], is none
FRACTIONS = np.float32(16)  # a scale is in units of 1 / 16
LOST = np.float32(15 / 32)  # about what rounding down costs
_ONE, _HALF, _MIDDLE, _MOST = (np.float32(v) for v in (1, 0.5, 7.5, 15))


class Line(NamedTuple):
    """value = scale * number + minimum, for each row."""

    scale: F32
    minimum: F32


def quantize_rows(rows: F32) -> tuple[npt.NDArray[np.int8], F32]:
    """What rows [N, K] stand for once they are packed: int8 [N, K] times the factors [N].

    A byte is minimum + floor(number * scale / 16); scale and minimum are whole, too, and those of
    the least squared error found.
    """
    factors = _factors(rows)
    is_number = factors > 0  # not NaN
    inverses = np.divide(_ONE, factors, out=np.zeros_like(factors), where=is_number)
    scaled = np.where(is_number[:, None], rows, np.float32(0)) * inverses[:, None]
    whole = np.zeros(rows.shape, np.int8)
    for start in range(0, rows.shape[1], GROUP):
        part = slice(start, start + GROUP)
        whole[:, part] = _quantize_group(scaled[:, part])
    return whole, factors


def _factors(rows: F32) -> F32:
    """What brings a row to [-127, 127]; 0 and NaN for rows of nothing, of no number."""
    largest = np.max(np.abs(rows), axis=1)
    factors: F32 = largest / LARGEST
    factors[largest < SMALLEST] = 0
    factors[~np.isfinite(largest)] = np.nan
    return factors


def _quantize_group(values: F32) -> npt.NDArray[np.int8]:
    least, most = values.min(axis=1), values.max(axis=1)
    middle: F32 = (least + most) * _HALF
    centered = values - middle[:, None]
    line = _best_line(centered, most - least)
    nearest = np.rint(line.scale * FRACTIONS)
    best, best_error = _whole_fit(centered, middle, line, nearest)
    for step in (-_ONE, _ONE):
        found, error = _whole_fit(centered, middle, line, nearest + step)
        is_better = error < best_error
        best = np.where(is_better[:, None], found, best)
        best_error = np.where(is_better, error, best_error)
    return best.astype(np.int8)


def _best_line(values: F32, span: F32) -> Line:
    best = Line(np.zeros_like(span), np.zeros_like(span))
    most: F32 = np.full_like(span, -1)
    for width in WIDTHS:
        found, line = _fit(values, _inverse(width, span, FLAT))
        is_better = found > most
        most = np.where(is_better, found, most)
        best = Line(*(np.where(is_better, a, b) for a, b in zip(line, best, strict=True)))
    return best


def _fit(values: F32, inverse_step: F32) -> tuple[F32, Line]:
    """What the best line through (number, value) explains, and the line."""
    numbers = _numbers(values * inverse_step[:, None] + _MIDDLE)
    total, squares, products = (_sum(v) for v in (numbers, numbers * numbers, values * numbers))
    of_values = _sum(values)
    count: F32 = np.full_like(of_values, values.shape[1])
    spread = count * squares - total * total
    scale: F32 = (count * products - of_values * total) * _inverse(_ONE, spread, np.float32(0))
    minimum: F32 = np.divide(of_values - scale * total, count)
    return scale * products + minimum * of_values, Line(scale, minimum)


def _whole_fit(values: F32, middle: F32, line: Line, scale: F32) -> tuple[F32, F32]:
    """What the group stands for with this whole scale and the minimum that suits it; its error."""
    scale = np.clip(scale, np.float32(0), np.float32(255))
    step, inverse = scale / FRACTIONS, _inverse(FRACTIONS, scale, np.float32(0))[:, None]
    start = line.minimum - (step - line.scale) * _MIDDLE
    numbers = _numbers((values - start[:, None]) * inverse)
    rest = _sum(values - np.floor(numbers * step[:, None]))
    minimum = np.rint(rest / np.float32(values.shape[1]) + middle)
    minimum = np.clip(minimum, -LARGEST - 1, LARGEST - np.floor(_MOST * step))
    offset = (minimum - middle)[:, None]
    numbers = _numbers((values - (offset - LOST)) * inverse)
    steps = np.floor(numbers * step[:, None])
    wrong = offset + steps - values
    return minimum[:, None] + steps, _sum(wrong * wrong)


def _numbers(values: F32) -> F32:
    return np.clip(np.rint(values), np.float32(0), _MOST)


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
