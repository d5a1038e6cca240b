"""Weights in the layout of the cpu kernels (native/kernels/linear/linear.h)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from headway.ops import checks
from headway.ops.cache import STORED_AS
from headway.ops.cpu import _native
from headway.ops.grouped import need_grouped
from headway.ops.interface import F32, GroupedWeight, PackedLinear, Raw, Weight
from headway.ops.memory import aligned_zeros

LAYOUTS = {
    "float32": _native.LAYOUT_F32,
    "bfloat16": _native.LAYOUT_BF16,
    "int8": _native.LAYOUT_INT8,
    "int4": _native.LAYOUT_INT4,
}
_PANEL_COLUMNS = 32


def pack_linear(
    native: _native.Backend,
    weight: Weight,
    bias: F32 | None,
    dtype: str,
    on_packed: Callable[[Raw], None] | None = None,
) -> PackedLinear:
    """Pack `weight` [N, K], float32 or bfloat16 in uint16, into panels of `dtype`."""
    parts = checks.need_weight(weight, bias, dtype)
    if any(len(part) % _PANEL_COLUMNS for part in parts[:-1]):
        parts = (np.concatenate(parts),)  # a panel would have rows of two
    if dtype in ("int8", "int4"):
        return _pack_whole(native, parts, bias, dtype, on_packed)
    out_features, in_features = sum(map(len, parts)), parts[0].shape[1]
    is_bf16 = dtype == "bfloat16"
    panel_words = _native.packed_words(LAYOUTS[dtype], _PANEL_COLUMNS, in_features)
    size = panel_words * 2 if is_bf16 else panel_words
    packed = aligned_zeros((_panels(out_features) * size,), STORED_AS[dtype])
    start = 0
    for part in parts:
        end = start + _panels(len(part)) * size
        native.pack_linear(np.ascontiguousarray(part), is_bf16, packed[start:end])
        start = end
        if on_packed is not None:
            on_packed(part)
    return PackedLinear(packed, bias, out_features, in_features, dtype, LAYOUTS[dtype])


def _pack_whole(
    native: _native.Backend,
    parts: tuple[Raw, ...],
    bias: F32 | None,
    dtype: str,
    on_packed: Callable[[Raw], None] | None,
) -> PackedLinear:
    """As int8 or int4: panels of all parts, and a scale for each row."""
    pack = native.pack_linear_int8 if dtype == "int8" else native.pack_linear_int4
    out_features, in_features = sum(map(len, parts)), parts[0].shape[1]
    panel_words = _native.packed_words(LAYOUTS[dtype], _PANEL_COLUMNS, in_features)
    packed = aligned_zeros((_panels(out_features) * panel_words,), np.int32)
    scales = np.empty(out_features, np.float32)
    row = start = 0
    for part in parts:
        past, end = row + len(part), start + _panels(len(part)) * panel_words
        pack(np.ascontiguousarray(part), packed[start:end], scales[row:past])
        row, start = past, end
        if on_packed is not None:
            on_packed(part)
    return PackedLinear(packed, bias, out_features, in_features, dtype, LAYOUTS[dtype], scales)


def pack_grouped(native: _native.Backend, weight: GroupedWeight, bias: F32 | None) -> PackedLinear:
    """Pack a weight with a scale for each group; its scales and minimums lie among the numbers."""
    need_grouped(weight, bias)
    layout = f"cpu/{weight.format}/v1"
    out_features, in_features = weight.numbers.shape
    words = _native.packed_words(layout, out_features, in_features)
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


def _panels(out_features: int) -> int:
    return -(-out_features // _PANEL_COLUMNS)


def as_table(weight: PackedLinear) -> Raw | None:
    """The panels of `weight`, from which `embed` can read its rows; None where it cannot."""
    per_step = {LAYOUTS["float32"]: 1, LAYOUTS["bfloat16"]: 2}.get(weight.layout)
    if per_step is None or weight.out_features % _PANEL_COLUMNS:
        return None
    num_panels = weight.out_features // _PANEL_COLUMNS
    num_steps = weight.data.size // (num_panels * _PANEL_COLUMNS * per_step)
    if num_steps * per_step != weight.in_features:
        return None  # the padding would look like columns
    shape = (num_panels, num_steps, _PANEL_COLUMNS)
    return weight.data.reshape(shape if per_step == 1 else (*shape, 2))
