"""Formats of weights in which neighbours along K share a scale, and sentences for bad ones."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from headway.ops.checks import need, need_array
from headway.ops.interface import F32, GroupedWeight


class GroupFormat(NamedTuple):
    bits: int  # of a number
    group: int  # numbers that share a scale
    has_minimum: bool

    @property
    def zero(self) -> int:
        """The number that stands for 0, where there are no minimums."""
        return 0 if self.has_minimum else 1 << (self.bits - 1)

    def groups_of(self, in_features: int) -> int:
        return -(-in_features // self.group)


FORMATS = {
    "int4/group32": GroupFormat(4, 32, False),
    "int4/group32-minimum": GroupFormat(4, 32, True),
    "int8/group32": GroupFormat(8, 32, False),
    "int8/group32-minimum": GroupFormat(8, 32, True),
    "int8/group16": GroupFormat(8, 16, False),
    "int8/group16-minimum": GroupFormat(8, 16, True),
}


def need_grouped(weight: GroupedWeight, bias: F32 | None) -> None:
    need(weight.format in FORMATS, f"there is no format of weights {weight.format!r}")
    format = FORMATS[weight.format]
    _need("numbers", weight.numbers, np.uint8, 2)
    rows, in_features = weight.numbers.shape
    need(min(rows, in_features) > 0, f"numbers must not be empty, got shape {[rows, in_features]}")
    most = int(weight.numbers.max())
    need(most < 1 << format.bits, f"numbers must have {format.bits} bits, found {most}")
    has_minimum = weight.minimums is not None
    wanted = "must" if format.has_minimum else "must not"
    need(has_minimum == format.has_minimum, f"minimums {wanted} be given with {weight.format}")
    shape = [rows, format.groups_of(in_features)]
    for name, array in (("scales", weight.scales), ("minimums", weight.minimums)):
        if array is not None:
            _need(name, array, np.float16, 2)
            found = list(array.shape)
            need(found == shape, f"{name} must have shape {shape}, got {found}")
            need(bool(np.all(np.isfinite(array))), f"{name} must be finite")
    need_array("factors", weight.factors, "float32", (rows,))
    if bias is not None:
        need_array("bias", bias, "float32", (rows,))


def _need(name: str, array: Any, dtype: type[np.generic], rank: int) -> None:
    if not isinstance(array, np.ndarray) or array.dtype != dtype:
        found = array.dtype if isinstance(array, np.ndarray) else type(array).__name__
        raise TypeError(f"{name} must be a {np.dtype(dtype)} array, got {found}")
    need(array.ndim == rank, f"{name} must have {rank} axes, got {array.ndim}")
    need(array.flags.c_contiguous, f"{name} must be C-contiguous: pass np.ascontiguousarray of it")
