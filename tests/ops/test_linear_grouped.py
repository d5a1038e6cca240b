"""Weights with a scale for each group: everywhere the bits of the twin."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from headway.ops import catalog
from headway.ops.grouped import FORMATS
from headway.ops.interface import GroupedWeight
from tests.ops.comparing import assert_same_bits
from tests.ops.grouping import random_weight, values_of

SHAPES = ((1, 1), (33, 3), (96, 64), (31, 65), (289, 131), (64, 1000), (70, 96))  # N, K


def product(ops, weight, x, bias=None, before=None):
    packed = ops.pack_grouped(weight, bias)
    out = np.zeros((len(x), packed.out_features), np.float32) if before is None else before.copy()
    ops.linear(x, packed, out, accumulate=before is not None)
    return out


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("m", [1, 2, 3, 5, 6, 7, 12, 13, 25])
def test_every_instruction_set_gives_the_bits_of_the_twin(ops, twin, rng, name, m):
    for n, k in SHAPES:
        weight, x = random_weight(rng, name, n, k), catalog.normal(rng, m, k)
        bias, before = catalog.normal(rng, n), catalog.normal(rng, m, n)
        assert_same_bits(product(ops, weight, x), product(twin, weight, x))
        expected = product(twin, weight, x, bias, before)
        assert_same_bits(product(ops, weight, x, bias, before), expected)


@pytest.mark.parametrize("name", FORMATS)
def test_a_row_does_not_know_how_many_there_are(any_ops, rng, name):
    weight, x = random_weight(rng, name, 65, 200), catalog.normal(rng, 40, 200)
    alone = np.concatenate([product(any_ops, weight, row[None]) for row in x])
    for m in (2, 3, 4, 6, 7, 11, 12, 13, 24, 25, 40):
        assert_same_bits(product(any_ops, weight, x[:m]), alone[:m])


@pytest.mark.parametrize("name", FORMATS)
def test_close_to_the_product_it_stands_for(any_ops, rng, name):
    """Only x is rounded: by at most half a unit of 1 / 127 of its group's largest."""
    weight, x = random_weight(rng, name, 64, 256), catalog.normal(rng, 9, 256)
    matrix = values_of(weight)
    bound = np.abs(x).max(1, keepdims=True) / 254 * np.abs(matrix).sum(1) * 1.01
    assert np.all(np.abs(product(any_ops, weight, x) - x @ matrix.T) <= bound)


@pytest.mark.parametrize("name", FORMATS)
def test_the_largest_sums_and_the_smallest_scales(ops, twin, name):
    format = FORMATS[name]
    shape = (33, format.groups_of(4096))
    halves = np.full(shape, 6e-8, np.float16)  # the smallest there is
    numbers = np.full((33, 4096), (1 << format.bits) - 1, np.uint8)
    factors = np.full(33, 2.0**20, np.float32)
    lowest = halves if format.has_minimum else None
    weight = GroupedWeight(name, numbers, halves, lowest, factors)
    x = np.ones((3, 4096), np.float32)
    x[1], x[2, ::2] = -1, -1
    result = product(ops, weight, x)
    assert_same_bits(result, product(twin, weight, x))
    np.testing.assert_allclose(result, x @ values_of(weight).T, rtol=1e-5)


BAD = {
    "format": ({"format": "int3/group8"}, "no format of weights 'int3/group8'"),
    "too many bits": ({"numbers": np.full((3, 40), 16, np.uint8)}, "must have 4 bits, found 16"),
    "numbers of another type": ({"numbers": np.ones((3, 40))}, "numbers must be a uint8 array"),
    "no minimums": ({"minimums": None}, "minimums must be given"),
    "groups missing": ({"scales": np.ones((3, 1), np.float16)}, r"must have shape \[3, 2\]"),
    "scale is infinite": ({"scales": np.full((3, 2), np.inf, np.float16)}, "must be finite"),
    "factors missing": ({"factors": np.ones(2, np.float32)}, "factors must have shape"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_weights_get_a_sentence(any_ops, rng, case):
    changes, sentence = BAD[case]
    weight = random_weight(rng, "int4/group32-minimum", 3, 40)
    with pytest.raises((ValueError, TypeError), match=sentence):
        any_ops.pack_grouped(dataclasses.replace(weight, **changes), None)


def test_bad_packed_weights_get_a_sentence(ops, rng):
    weight = ops.pack_grouped(random_weight(rng, "int4/group32", 33, 4), None)
    x, out = np.ones((2, 4), np.float32), np.ones((2, 33), np.float32)
    for change, sentence in (
        ({"data": weight.data[:-1]}, "weight.data must have shape"),
        ({"scales": weight.scales[:-1]}, "must have shape"),
        ({"scales": None}, "weight.scales must be given"),
        ({"in_features": 500}, "must have shape"),
    ):
        with pytest.raises((ValueError, TypeError), match=sentence):
            ops.linear(x, dataclasses.replace(weight, **change), out)
