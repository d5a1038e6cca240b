"""Weights in the layout of the cpu kernels (native/kernels/linear/linear.h)."""

from __future__ import annotations

import numpy as np

from headway.ops import checks
from headway.ops.cache import STORED_AS
from headway.ops.cpu import _native
from headway.ops.grouped import need_grouped
from headway.ops.interface import F32, GroupedWeight, PackedLinear, Raw
from headway.ops.memory import aligned_zeros

LAYOUTS = {
    "float32": _native.LAYOUT_F32,
    "bfloat16": _native.LAYOUT_BF16,
    "int8": _native.LAYOUT_INT8,
}
GROUPED_LAYOUTS = frozenset(_native.grouped_layouts())


def pack_linear(native: _native.Backend, weight: Raw, bias: F32 | None, dtype: str) -> PackedLinear:
    """Pack `weight` [N, K], float32 or bfloat16 in uint16, into panels of `dtype`."""
    checks.need_weight(weight, bias, dtype)
    if dtype == "int8":
        return _pack_int8(native, weight, bias)
    if dtype == "int4":
        return _pack_int4(native, weight, bias)
    out_features, in_features = weight.shape
    is_bf16 = dtype == "bfloat16"
    words = _native.packed_words(out_features, in_features, is_bf16)
    packed = aligned_zeros((words * 2 if is_bf16 else words,), STORED_AS[dtype])
    native.pack_linear(np.ascontiguousarray(weight), is_bf16, packed)
    return PackedLinear(packed, bias, out_features, in_features, dtype, LAYOUTS[dtype])


def _pack_int8(native: _native.Backend, weight: Raw, bias: F32 | None) -> PackedLinear:
    out_features, in_features = weight.shape
    packed = aligned_zeros((_native.packed_int8_words(out_features, in_features),), np.int32)
    scales = np.empty(out_features, np.float32)
    native.pack_linear_int8(np.ascontiguousarray(weight), packed, scales)
    return PackedLinear(
        packed, bias, out_features, in_features, "int8", _native.LAYOUT_INT8, scales
    )


def _pack_int4(native: _native.Backend, weight: Raw, bias: F32 | None) -> PackedLinear:
    shape, layout = weight.shape, _native.LAYOUT_INT4
    packed = aligned_zeros((_native.packed_grouped_words(layout, *shape),), np.int32)
    factors = np.empty(shape[0], np.float32)
    native.pack_linear_int4(np.ascontiguousarray(weight), packed, factors)
    return PackedLinear(packed, bias, shape[0], shape[1], _format_of(layout), layout, factors)


def _format_of(layout: str) -> str:
    """The format in ops/grouped.py of a layout: "cpu/int4/group32/v1" has "int4/group32"."""
    return layout.removeprefix("cpu/").removesuffix("/v1")


def pack_grouped(native: _native.Backend, weight: GroupedWeight, bias: F32 | None) -> PackedLinear:
    """Pack a weight with a scale for each group; its scales and minimums lie among the numbers."""
    need_grouped(weight, bias)
    layout = f"cpu/{weight.format}/v1"
    out_features, in_features = weight.numbers.shape
    words = _native.packed_grouped_words(layout, out_features, in_features)
    packed = aligned_zeros((words,), np.int32)
    native.pack_linear_grouped(
        layout,
        weight.numbers,
        weight.scales.view(np.uint16),
        None if weight.minimums is None else weight.minimums.view(np.uint16),
        packed,
    )
    return PackedLinear(
        packed, bias, out_features, in_features, weight.format, layout, weight.factors
    )
