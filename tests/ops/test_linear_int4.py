"""int4: everywhere the bits of the twin, at any number of rows; how well it fits."""

from __future__ import annotations

import numpy as np
import pytest

from headway.ops import catalog
from headway.ops.reference.int4 import GROUP, quantize_rows
from tests.ops.comparing import assert_same_bits

SHAPES = ((1, 1), (33, 3), (96, 64), (31, 65), (289, 131), (64, 1000))  # N, K


def product(ops, weight, x, bias=None, before=None):
    packed = ops.pack_linear(weight, bias, "int4")
    out = np.zeros((len(x), packed.out_features), np.float32) if before is None else before.copy()
    ops.linear(x, packed, out, accumulate=before is not None)
    return out


def values_of(rows):
    """What the rows stand for once they are packed, in float64."""
    whole, factors = quantize_rows(rows)
    return whole.astype(np.float64) * factors[:, None].astype(np.float64)


def odd_rows(rng, n, k):
    """Rows of nothing, of one value, of very small, very large, very different and no numbers."""
    rows = catalog.normal(rng, n, k)
    rows[3], rows[4] = 0, rows[4] * np.float32(1e-37)
    rows[5] = np.sign(rows[5]) * np.float32(3e38)
    rows[6, 0], rows[7] = np.nan, 0.25
    rows[8] = rows[8] * np.exp2(rng.integers(-60, 60, k).astype(np.float32))
    rows[9, 1] = -np.inf
    rows[10], rows[11, ::2] = -1, 1
    return rows


@pytest.mark.parametrize("m", [1, 2, 3, 5, 6, 7, 12, 13, 25, 40])
def test_every_instruction_set_gives_the_bits_of_the_twin(ops, twin, rng, m):
    for n, k in SHAPES:
        weight, x = catalog.normal(rng, n, k), catalog.normal(rng, m, k)
        bias, before = catalog.normal(rng, n), catalog.normal(rng, m, n)
        assert_same_bits(product(ops, weight, x), product(twin, weight, x))
        expected = product(twin, weight, x, bias, before)
        assert_same_bits(product(ops, weight, x, bias, before), expected)


@pytest.mark.parametrize("m", [7, 13])
def test_more_panels_than_are_computed_at_once(ops, twin, rng, m):
    weight, x = catalog.normal(rng, 130, 4000), catalog.normal(rng, m, 4000)
    assert_same_bits(product(ops, weight, x), product(twin, weight, x))


def test_a_row_does_not_know_how_many_there_are(any_ops, rng):
    weight, x = catalog.normal(rng, 65, 200), catalog.normal(rng, 40, 200)
    alone = np.concatenate([product(any_ops, weight, row[None]) for row in x])
    for m in (2, 3, 4, 6, 7, 11, 12, 13, 24, 25, 40):
        assert_same_bits(product(any_ops, weight, x[:m]), alone[:m])


@pytest.mark.parametrize(("n", "k"), [(33, 3), (31, 65), (289, 131), (64, 1000)])
def test_every_weight_is_that_of_the_twin(ops, twin, rng, n, k):
    rows = odd_rows(rng, n, k)
    packed, expected = ops.pack_linear(rows, None, "int4"), twin.pack_linear(rows, None, "int4")
    assert packed.dtype == expected.dtype == "int4"
    assert_same_bits(packed.scales, expected.scales)
    one_by_one = np.eye(k, dtype=np.float32)
    assert_same_bits(product(ops, rows, one_by_one), product(twin, rows, one_by_one))


def test_a_bfloat16_weight_packs_as_its_float32_values_do(ops, rng):
    rounded = catalog.to_bf16(catalog.normal(rng, 40, 70))
    narrow = ops.pack_linear(rounded, None, "int4")
    wide = ops.pack_linear(catalog.as_float32(rounded), None, "int4")
    assert_same_bits(narrow.data, wide.data)
    assert_same_bits(narrow.scales, wide.scales)


def test_what_is_on_a_grid_of_bytes_stays_there(rng):
    """Scales are multiples of 1 / 16 of the row's unit, and round down."""
    numbers = rng.integers(0, 16, (5, 3, GROUP))
    numbers[:, :, 0], numbers[:, :, 1] = 0, 15
    scales = np.array([16, 32, 96])[:, None]
    rows = (numbers * scales // 16 - 40).reshape(5, -1).astype(np.float32)
    rows[:, -1] = 127
    np.testing.assert_array_equal(quantize_rows(rows)[0][:, : 2 * GROUP], rows[:, : 2 * GROUP])


def test_flat_groups_keep_their_value():
    rows = np.repeat(np.float32([[0.5, -1, 0.25, 0]]), GROUP, axis=1)
    np.testing.assert_allclose(values_of(rows), rows, rtol=0, atol=0.5 / 127)


def test_no_more_error_than_plain_rounding_in_float32(rng):
    rows = catalog.normal(rng, 20, 320)
    groups = rows.reshape(20, -1, GROUP)
    least, most = groups.min(2, keepdims=True), groups.max(2, keepdims=True)
    step = (most - least) / 15
    plain = ((least + np.rint((groups - least) / step) * step) - groups) ** 2
    found = (values_of(rows) - rows) ** 2
    assert found.sum() < 0.95 * plain.sum()


def test_rows_without_numbers_stay_alone(any_ops, rng):
    rows, x = odd_rows(rng, 40, 70), catalog.normal(rng, 2, 70)
    found = product(any_ops, rows, x)
    assert np.isnan(found[:, [6, 9]]).all()
    assert not found[:, 3].any()
    assert not np.isnan(np.delete(found, [6, 9], axis=1)).any()
