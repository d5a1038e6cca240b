"""GGML's block quantisations as they are: numbers, scales and minimums, not by way of floats.

Scales that a file has in float16 stay exact; those that are products (of the K types) are rounded
to float16. A row's scales are brought to one range by a power of two, which becomes its factor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headway.model.weights.dequantize import (
    Blocks,
    eighths,
    five_bits,
    half,
    nibbles,
    q4_k_numbers,
    q5_k_numbers,
    q6_k_numbers,
    q6_k_scales,
)
from headway.ops.grouped import FORMATS, GroupFormat
from headway.ops.interface import F32, GroupedWeight

_MOST_BITS = 14  # of the largest number that a row's scales and minimums make
_PART_BLOCKS = 1 << 13  # unpacked at a time, so that the temporaries stay in the cache

Numbers = npt.NDArray[np.uint8]
Halves = npt.NDArray[np.float16]


class _Unpacked(NamedTuple):
    """Of blocks: numbers [n, values], scales and minimums [n, groups]."""

    numbers: Numbers
    scales: F32
    minimums: F32 | None


def _q4_0(blocks: Blocks) -> _Unpacked:
    return _Unpacked(nibbles(blocks[:, 2:18]), half(blocks, 0), None)


def _q4_1(blocks: Blocks) -> _Unpacked:
    return _Unpacked(nibbles(blocks[:, 4:20]), half(blocks, 0), half(blocks, 2))


def _q5_0(blocks: Blocks) -> _Unpacked:
    return _Unpacked(five_bits(blocks, 2) + np.uint8(128 - 16), half(blocks, 0), None)


def _q5_1(blocks: Blocks) -> _Unpacked:
    return _Unpacked(five_bits(blocks, 4), half(blocks, 0), half(blocks, 2))


def _q8_0(blocks: Blocks) -> _Unpacked:
    return _Unpacked(blocks[:, 2:34] ^ np.uint8(128), half(blocks, 0), None)


def _q4_k(blocks: Blocks) -> _Unpacked:
    scales, minimums = eighths(blocks)
    return _Unpacked(q4_k_numbers(blocks), scales, -minimums)


def _q5_k(blocks: Blocks) -> _Unpacked:
    scales, minimums = eighths(blocks)
    return _Unpacked(q5_k_numbers(blocks), scales, -minimums)


def _q6_k(blocks: Blocks) -> _Unpacked:
    return _Unpacked(q6_k_numbers(blocks) + np.uint8(128 - 32), q6_k_scales(blocks), None)


TAKEN: dict[str, tuple[str, Callable[[Blocks], _Unpacked]]] = {
    "Q4_0": ("int4/group32", _q4_0),
    "Q4_1": ("int4/group32-minimum", _q4_1),
    "Q4_K": ("int4/group32-minimum", _q4_k),
    "Q5_0": ("int8/group32", _q5_0),
    "Q5_1": ("int8/group32-minimum", _q5_1),
    "Q5_K": ("int8/group32-minimum", _q5_k),
    "Q6_K": ("int8/group16", _q6_k),
    "Q8_0": ("int8/group32", _q8_0),
}


def take_blocks(blocks: Blocks, type_name: str, shape: tuple[int, ...]) -> GroupedWeight:
    """blocks uint8 [n, num_bytes] of a type in TAKEN, a matrix of this shape."""
    format, unpack = TAKEN[type_name]
    with np.errstate(all="ignore"):  # as in dequantize: scales in a damaged file
        parts = [
            unpack(np.ascontiguousarray(blocks[start : start + _PART_BLOCKS]))
            for start in range(0, len(blocks), _PART_BLOCKS)
        ]
    numbers = np.concatenate([part.numbers for part in parts]).reshape(shape)
    scales = np.concatenate([part.scales for part in parts]).reshape(len(numbers), -1)
    minimums = None
    if FORMATS[format].has_minimum:
        found = [part.minimums for part in parts if part.minimums is not None]
        minimums = np.concatenate(found).reshape(scales.shape)
    return _narrowed(format, numbers, scales, minimums)


def _narrowed(format: str, numbers: Numbers, scales: F32, minimums: F32 | None) -> GroupedWeight:
    """Scales and minimums in float16; rows with one that is no number have the factor NaN."""
    largest = np.max(np.abs(scales), axis=1) * np.float32(1 << (FORMATS[format].bits - 1))
    if minimums is not None:
        largest = np.maximum(largest, np.max(np.abs(minimums), axis=1))
    is_number = np.isfinite(largest)
    _, powers = np.frexp(np.where(is_number & (largest > 0), largest, np.float32(1)))
    up = np.where(is_number, np.ldexp(np.float32(1), _MOST_BITS - powers), np.float32(0))
    factors = np.where(is_number, np.ldexp(np.float32(1), powers - _MOST_BITS), np.float32(np.nan))

    def narrow(values: F32) -> Halves:
        return (np.where(np.isfinite(values), values, 0) * up[:, None]).astype(np.float16)

    lowest = None if minimums is None else narrow(minimums)
    return GroupedWeight(format, numbers, narrow(scales), lowest, factors.astype(np.float32))


def stacked(weights: Sequence[GroupedWeight]) -> GroupedWeight:
    """Below each other, in the smallest format that holds all of them exactly."""
    format = reduce(_join, (weight.format for weight in weights))
    parts = [_widened(weight, format) for weight in weights]
    if len(parts) == 1:
        return parts[0]
    minimums = [part.minimums for part in parts if part.minimums is not None]
    return GroupedWeight(
        format,
        np.concatenate([part.numbers for part in parts]),
        np.concatenate([part.scales for part in parts]),
        np.concatenate(minimums) if minimums else None,
        np.concatenate([part.factors for part in parts]),
    )


def _join(one: str, other: str) -> str:
    a, b = FORMATS[one], FORMATS[other]
    wanted = GroupFormat(max(a.bits, b.bits), min(a.group, b.group), a.has_minimum or b.has_minimum)
    return next(name for name, format in FORMATS.items() if format == wanted)


def _widened(weight: GroupedWeight, format: str) -> GroupedWeight:
    if weight.format == format:
        return weight
    old, new = FORMATS[weight.format], FORMATS[format]
    numbers, scales, minimums = weight.numbers, weight.scales, weight.minimums
    if new.has_minimum and minimums is None:
        minimums = scales * np.float16(-old.zero)
    elif new.zero != old.zero:
        numbers = numbers + np.uint8(new.zero - old.zero)
    repeats, groups = old.group // new.group, new.groups_of(numbers.shape[1])
    scales = np.repeat(scales, repeats, axis=1)[:, :groups]
    if minimums is not None:
        minimums = np.ascontiguousarray(np.repeat(minimums, repeats, axis=1)[:, :groups])
    return GroupedWeight(format, numbers, np.ascontiguousarray(scales), minimums, weight.factors)
