"""int8 `linear`: the same bits on every instruction set and in the twin; NaN stays in its row."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from headway.ops import catalog
from tests.ops.comparing import assert_same_bits


def product(ops, matrix, x, bias=None, before=None):
    weight = ops.pack_linear(matrix, bias, "int8")
    out = np.zeros((len(x), len(matrix)), np.float32) if before is None else before.copy()
    ops.linear(x, weight, out, accumulate=before is not None)
    return out


@pytest.mark.parametrize("m", [1, 2, 3, 12, 13, 16, 17, 32, 33, 64, 70])
@pytest.mark.parametrize(("n", "k"), [(1, 1), (33, 3), (96, 64), (31, 65), (289, 131), (64, 1000)])
def test_every_instruction_set_gives_the_bits_of_the_twin(ops, twin, rng, m, n, k):
    matrix, x = catalog.normal(rng, n, k), catalog.normal(rng, m, k)
    bias, before = catalog.normal(rng, n), catalog.normal(rng, m, n)
    assert_same_bits(product(ops, matrix, x), product(twin, matrix, x))
    assert_same_bits(product(ops, matrix, x, bias, before), product(twin, matrix, x, bias, before))


@pytest.mark.parametrize("sign", [1, -1])
def test_the_largest_sums_do_not_saturate_or_wrap(ops, twin, sign):
    """All magnitudes 127: pairs of such products do not fit in 16 bits."""
    for k in (64, 4096, 100_000):
        matrix = np.full((33, k), sign, np.float32)
        x = np.ones((3, k), np.float32)
        x[1] = -1
        x[2, ::2] = -1
        result = product(ops, matrix, x)
        assert_same_bits(result, product(twin, matrix, x))
        np.testing.assert_allclose(result[:, 0], [sign * k, -sign * k, 0], rtol=1e-6)


def test_a_bfloat16_weight_packs_as_its_float32_values_do(ops, rng):
    rounded = catalog.to_bf16(catalog.normal(rng, 40, 70))
    narrow = ops.pack_linear(rounded, None, "int8")
    wide = ops.pack_linear(catalog.as_float32(rounded), None, "int8")
    assert_same_bits(narrow.data, wide.data)
    assert_same_bits(narrow.scales, wide.scales)


def test_rounding_is_to_nearest_and_ties_go_to_even(any_ops):
    """With identity weights the result shows each rounded element."""
    x = np.array([[127, 0.5, 1.5, 2.5, -0.5, -1.5, 126.49, -126.51, -127, 0.49]], np.float32)
    found = product(any_ops, np.eye(10, dtype=np.float32), x)
    expected = [127, 0, 2, 2, 0, -2, 126, -127, -127, 0]
    np.testing.assert_allclose(found[0], expected, rtol=1e-6)


def test_zeros_infinities_and_nan_stay_in_their_row(any_ops, rng):
    matrix, x = catalog.normal(rng, 40, 50), catalog.normal(rng, 7, 50)
    expected = product(any_ops, matrix, x)
    x[0] = 0
    x[2, 3], x[4, 49], x[6, 0] = np.nan, np.inf, -np.inf
    found = product(any_ops, matrix, x)
    assert not found[0].any()
    assert np.isnan(found[[2, 4, 6]]).all()
    assert_same_bits(found[[1, 3, 5]], expected[[1, 3, 5]])
    matrix[5, 5], matrix[6] = np.inf, 0
    columns = product(any_ops, matrix, x)[1]
    assert np.isnan(columns[5])
    assert columns[6] == 0
    assert_same_bits(np.delete(columns, [5, 6]), np.delete(expected[1], [5, 6]))


def test_very_small_and_very_large_rows(ops, twin, rng):
    matrix = catalog.normal(rng, 33, 40)
    scales = np.array([1e-45, 1e-38, 2.0**-101, 2.0**-99, 1e30, 3e38], np.float32)
    x = np.clip(catalog.normal(rng, len(scales), 40), -1, 1) * scales[:, None]
    found = product(ops, matrix, x)
    assert_same_bits(found, product(twin, matrix, x))
    assert not found[:3].any()
    assert np.isfinite(found[3:5]).all()


def test_close_to_the_product_it_stands_for(any_ops, rng):
    """Each factor is off by at most half a unit of 1 / 127 of its row's largest."""
    matrix, x = catalog.normal(rng, 64, 256), catalog.normal(rng, 9, 256)
    x_unit = np.abs(x).max(1, keepdims=True) / 254
    w_unit = np.abs(matrix).max(1, keepdims=True) / 254
    bound = x_unit * np.abs(matrix).sum(1) + np.abs(x).sum(1)[:, None] * w_unit.T
    bound = bound + x.shape[1] * x_unit * w_unit.T
    assert np.all(np.abs(product(any_ops, matrix, x) - x @ matrix.T) <= bound * 1.001)


def test_bad_int8_weights_get_a_sentence(ops, twin):
    weight = ops.pack_linear(np.ones((33, 4), np.float32), None, "int8")
    x, out = np.ones((2, 4), np.float32), np.ones((2, 33), np.float32)
    for change, sentence in (
        ({"data": weight.data[:-1]}, "weight.data must have shape"),
        ({"scales": weight.scales[:-1]}, "must have shape"),
        ({"scales": None}, "weight.scales must be given"),
        ({"in_features": 500}, "must have shape"),
    ):
        with pytest.raises((ValueError, TypeError), match=sentence):
            ops.linear(x, dataclasses.replace(weight, **change), out)
    bare = twin.pack_linear(np.ones((33, 4), np.float32), None, "int8")
    with pytest.raises(ValueError, match="must be given with int8"):
        twin.linear(x, dataclasses.replace(bare, scales=None), out)
