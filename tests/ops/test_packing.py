"""Packing: from parts as from the whole, in every dtype; and a packed weight as a table."""

from __future__ import annotations

import numpy as np
import pytest

from headway.ops import catalog
from headway.ops.bfloat16 import to_bf16
from headway.ops.cpu.backend import CpuOps
from headway.ops.reference.backend import ReferenceOps
from tests.ops.comparing import assert_same_bits

DTYPES = ("float32", "bfloat16", "int8")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("heights", [(64, 32, 7), (33, 40), (5,)])
@pytest.mark.parametrize("is_bf16", [False, True])
def test_parts_are_packed_as_the_whole(any_ops, rng, dtype, heights, is_bf16):
    parts = [catalog.normal(rng, height, 77) for height in heights]
    if is_bf16:
        parts = [to_bf16(part) for part in parts]
    bias = catalog.normal(rng, sum(heights))
    whole = any_ops.pack_linear(np.concatenate(parts), bias, dtype)
    stacked = any_ops.pack_linear(tuple(parts), bias, dtype)
    assert_same_bits(stacked.data, whole.data)
    if dtype == "int8":
        assert_same_bits(stacked.scales, whole.scales)
    assert (stacked.out_features, stacked.layout) == (whole.out_features, whole.layout)


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_part_is_heard_of_once(any_ops, rng, dtype):
    parts = (catalog.normal(rng, 32, 8), catalog.normal(rng, 32, 8))
    heard = []
    any_ops.pack_linear(parts, None, dtype, on_packed=heard.append)
    assert sum(len(part) for part in heard) == 64
    assert_same_bits(np.concatenate(heard), np.concatenate(parts))


def test_parts_that_do_not_fit_are_refused(any_ops):
    parts = (np.zeros((32, 4), np.float32), np.zeros((32, 5), np.float32))
    with pytest.raises(ValueError, match="one dtype and one in_features"):
        any_ops.pack_linear(parts, None, "float32")


@pytest.mark.parametrize(("n", "k"), [(64, 64), (33, 33), (1, 1)])
def test_a_panel_is_the_columns_in_order(rng, n, k):
    """The layout, from its words: what linear.h says."""
    weight = to_bf16(catalog.normal(rng, n, k))
    packed = CpuOps("portable", num_threads=1).pack_linear(weight, None, "bfloat16").data
    panels, steps = (n + 31) // 32, (k + 31) // 32 * 16
    expected = np.zeros((panels * 32, steps * 2), np.uint16)
    expected[:n, :k] = weight
    expected = expected.reshape(panels, 32, steps, 2).transpose(0, 2, 1, 3)
    assert_same_bits(packed.reshape(expected.shape), np.ascontiguousarray(expected))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_packed_weight_is_a_table(any_ops, rng, dtype):
    matrix, ids = catalog.normal(rng, 96, 64), rng.integers(0, 96, 50, dtype=np.int32)
    table = any_ops.as_table(any_ops.pack_linear(matrix, None, dtype))
    rows = to_bf16(matrix) if dtype == "bfloat16" else matrix
    out, expected = np.full((2, 50, 64), np.nan, np.float32)
    any_ops.embed(table, ids, out)
    ReferenceOps().embed(rows, ids, expected)
    assert_same_bits(out, expected)


def test_ids_outside_a_packed_table_are_refused(any_ops, rng):
    table = any_ops.as_table(any_ops.pack_linear(catalog.normal(rng, 32, 32), None, "bfloat16"))
    with pytest.raises(ValueError, match="token_ids"):
        any_ops.embed(table, np.array([32], np.int32), np.zeros((1, 32), np.float32))


@pytest.mark.parametrize(
    ("n", "k", "dtype"), [(33, 32, "float32"), (32, 33, "bfloat16"), (32, 32, "int8")]
)
def test_what_has_padding_or_other_numbers_is_no_table(ops, rng, n, k, dtype):
    assert ops.as_table(ops.pack_linear(catalog.normal(rng, n, k), None, dtype)) is None
