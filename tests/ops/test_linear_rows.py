"""linear: a row's bits are the same at every M, in every place, with any neighbours and threads."""

from __future__ import annotations

import numpy as np
import pytest

from headway.ops import catalog
from headway.ops.cpu.backend import CpuOps
from tests.ops.comparing import assert_same_bits

DTYPES = ("float32", "bfloat16", "int8", "int4")
SHAPES = ((17, 33), (1, 1), (96, 64), (289, 131))  # N, K


def product(ops, x, weight):
    out = np.full((len(x), weight.out_features), np.nan, np.float32)
    ops.linear(np.ascontiguousarray(x), weight, out)
    return out


def total(ops, x, weight, before):
    out = before.copy()
    ops.linear(np.ascontiguousarray(x), weight, out, accumulate=True)
    return out


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "k"), SHAPES)
def test_rows_are_the_same_at_every_m(any_ops, rng, n, k, dtype):
    weight = any_ops.pack_linear(catalog.normal(rng, n, k), catalog.normal(rng, n), dtype)
    x = catalog.normal(rng, 70, k)
    alone = np.concatenate([product(any_ops, row[None], weight) for row in x])
    for m in (2, 3, 4, 5, 7, 11, 12, 13, 15, 16, 17, 24, 25, 31, 32, 33, 48, 63, 64, 65, 70):
        assert_same_bits(product(any_ops, x[:m], weight), alone[:m])
        assert_same_bits(product(any_ops, x[70 - m :], weight), alone[70 - m :])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("n", [64, 90])
@pytest.mark.parametrize("has_bias", [False, True])
def test_rows_are_added_the_same_at_every_m(any_ops, rng, n, has_bias, dtype):
    bias = catalog.normal(rng, n) if has_bias else None
    weight = any_ops.pack_linear(catalog.normal(rng, n, 40), bias, dtype)
    x, before = catalog.normal(rng, 70, 40), catalog.normal(rng, 70, n)
    alone = np.concatenate(
        [total(any_ops, x[row, None], weight, before[row, None]) for row in range(70)]
    )
    assert_same_bits(alone, before + product(any_ops, x, weight))
    for m in (2, 4, 7, 12, 13, 24, 61, 70):
        assert_same_bits(total(any_ops, x[:m], weight, before[:m]), alone[:m])


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_are_the_same_where_a_panel_is_larger_than_a_chunk(ops, rng, dtype):
    weight = ops.pack_linear(catalog.normal(rng, 70, 7000), None, dtype)
    x = catalog.normal(rng, 73, 7000)
    whole = product(ops, x, weight)
    for rows in ([0], [72], slice(3, 10), slice(11, 42)):
        assert_same_bits(product(ops, x[rows], weight), whole[rows])


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_do_not_know_their_place_or_neighbours(any_ops, rng, dtype):
    weight = any_ops.pack_linear(catalog.normal(rng, 65, 77), None, dtype)
    x = catalog.normal(rng, 37, 77)
    order = rng.permutation(37)
    whole = product(any_ops, x, weight)
    assert_same_bits(product(any_ops, x[order], weight), whole[order])
    x[::2] = np.nan
    assert_same_bits(product(any_ops, x, weight)[1::2], whole[1::2])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", [1, 2, 5, 64, 200])
def test_rows_do_not_know_the_number_of_threads(ops, rng, m, dtype):
    matrix, x = catalog.normal(rng, 200, 300), catalog.normal(rng, m, 300)
    weight = ops.pack_linear(matrix, None, dtype)
    expected = product(CpuOps(ops.isa, num_threads=1), x, weight)
    for threads in (2, 3, 16):
        assert_same_bits(product(CpuOps(ops.isa, num_threads=threads), x, weight), expected)


def test_instruction_sets_read_one_layout(ops, rng):
    matrix = catalog.normal(rng, 40, 50)
    for dtype in DTYPES:
        packed = ops.pack_linear(matrix, None, dtype)
        portable = CpuOps("portable", num_threads=1).pack_linear(matrix, None, dtype)
        assert packed.layout == portable.layout
        assert_same_bits(packed.data, portable.data)
        if packed.scales is not None:
            assert_same_bits(packed.scales, portable.scales)
