"""Blocks decoded by the kernels are what the numpy code makes of them, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from headway.model.weights.dequantize import BLOCK_TYPES, dequantize
from headway.ops.bfloat16 import to_bf16
from headway.ops.blocks import decode_blocks
from headway.ops.cpu import _native


@pytest.mark.parametrize("type_name", _native.block_types())
@pytest.mark.parametrize("count", [1, 700])
def test_random_blocks_equal_the_twin(rng, type_name, count):
    block = BLOCK_TYPES[type_name]
    blocks = rng.integers(0, 256, (count, block.num_bytes), dtype=np.uint8)
    expected = dequantize(blocks, type_name)
    wide = np.zeros((count, block.num_values), np.float32)
    narrow = np.zeros((count, block.num_values), np.uint16)
    assert decode_blocks(type_name, blocks, wide)
    assert decode_blocks(type_name, blocks, narrow)
    np.testing.assert_array_equal(wide, expected)
    is_number = ~np.isnan(expected)
    assert is_number.any() or count == 1
    np.testing.assert_array_equal(narrow[is_number], to_bf16(expected)[is_number])


def test_other_types_are_left_to_the_twin():
    out = np.full((1, 256), 7, np.float32)
    assert not decode_blocks("Q2_K", np.zeros((1, 84), np.uint8), out)
    assert (out == 7).all()


def test_blocks_of_the_wrong_size_are_refused():
    with pytest.raises(ValueError, match="blocks must have shape"):
        decode_blocks("Q8_0", np.zeros((2, 33), np.uint8), np.zeros((2, 32), np.float32))
    with pytest.raises(ValueError, match="out must have shape"):
        decode_blocks("Q8_0", np.zeros((2, 34), np.uint8), np.zeros((2, 31), np.float32))
    with pytest.raises(ValueError, match="not decoded here"):
        _native.dequantize("Q9", np.zeros((2, 34), np.uint8), np.zeros((2, 32), np.float32))
