"""Every block type gives what the gguf package gives, on random bytes, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

gguf = pytest.importorskip("gguf")

from headway.model.weights.dequantize import BLOCK_TYPES, dequantize  # noqa: E402

pytestmark = pytest.mark.golden

_QUANTISED = [name for name in BLOCK_TYPES if name not in ("F64",)]


@pytest.mark.parametrize("type_name", _QUANTISED)
def test_random_blocks_equal_the_gguf_package(type_name):
    block = BLOCK_TYPES[type_name]
    blocks = np.random.default_rng(7).integers(0, 256, (4096, block.num_bytes), dtype=np.uint8)
    ours = dequantize(blocks, type_name)
    with np.errstate(all="ignore"):
        theirs = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[type_name])
    assert ours.dtype == np.float32
    np.testing.assert_array_equal(ours, theirs.reshape(ours.shape))


@pytest.mark.parametrize("type_name", list(BLOCK_TYPES))
def test_sizes_and_ids_are_the_formats(type_name):
    block = BLOCK_TYPES[type_name]
    theirs = gguf.GGMLQuantizationType[type_name]
    assert block.type_id == theirs.value
    assert (block.num_values, block.num_bytes) == gguf.GGML_QUANT_SIZES[theirs]


def test_float64_is_rounded_to_float32():
    values = np.array([1 / 3, -2.0, 1e-3])
    assert np.array_equal(
        dequantize(values.view(np.uint8).reshape(-1, 8), "F64").ravel(), values.astype(np.float32)
    )
