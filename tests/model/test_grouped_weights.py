"""Block types that are taken as they are: the values are the file's, alone and stacked."""

from __future__ import annotations

import numpy as np
import pytest
from tests.ops.grouping import values_of
from tiny import make_tiny_llama, run_in_chunks

from headway.model.errors import ModelError
from headway.model.loader import load_model
from headway.model.source import ModelSource
from headway.model.weights.dequantize import BLOCK_TYPES, dequantize
from headway.model.weights.grouped import TAKEN, stacked, take_blocks
from headway.ops.reference.backend import ReferenceOps

PRODUCTS = ("Q4_K", "Q5_K", "Q6_K")  # types whose scales are products, which float16 rounds
F16_OFFSETS = {"Q4_0": (0,), "Q4_1": (0, 2), "Q4_K": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2)} | {
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    "Q8_0": (0,),
}


def random_blocks(rng, type_name, rows, width):
    """Blocks uint8 [n, num_bytes] of a matrix, with scales of a weight's size."""
    block = BLOCK_TYPES[type_name]
    count = rows * width // block.num_values
    blocks = rng.integers(0, 256, (count, block.num_bytes), dtype=np.uint8)
    for at in F16_OFFSETS[type_name]:
        halves = (rng.standard_normal(count) * 0.01).astype("<f2")
        blocks[:, at : at + 2] = halves.view(np.uint8).reshape(-1, 2)
    return blocks


def relative_error(found, expected):
    return np.abs(found - expected).max() / np.abs(expected).max()


@pytest.mark.parametrize("type_name", TAKEN)
def test_the_values_are_those_of_the_file(type_name):
    rng = np.random.default_rng(3)
    blocks = random_blocks(rng, type_name, 6, 512)
    expected = dequantize(blocks, type_name).reshape(6, 512)
    found = values_of(take_blocks(blocks, type_name, (6, 512)))
    # Not a product: the file's own rounding to float32 is all the difference.
    assert relative_error(found, expected) < (2**-10 if type_name in PRODUCTS else 2**-23)


@pytest.mark.parametrize("first", TAKEN)
def test_stacked_with_any_other_type_the_values_stay(first):
    rng = np.random.default_rng(4)
    for second in TAKEN:
        one = take_blocks(random_blocks(rng, first, 3, 256), first, (3, 256))
        two = take_blocks(random_blocks(rng, second, 2, 256), second, (2, 256))
        found = values_of(stacked([one, two]))
        assert relative_error(found[:3], values_of(one)) < 1e-12
        assert relative_error(found[3:], values_of(two)) < 1e-12


def test_a_damaged_scale_spoils_its_row_alone():
    rng = np.random.default_rng(5)
    blocks = random_blocks(rng, "Q4_1", 3, 64)
    blocks[2, :2] = np.array([np.inf], "<f2").view(np.uint8)
    weight = take_blocks(blocks, "Q4_1", (3, 64))
    assert np.isnan(weight.factors).tolist() == [False, True, False]
    assert np.isfinite(weight.scales).all()


def test_rows_of_very_small_and_very_large_scales_keep_their_values():
    rng = np.random.default_rng(6)
    blocks = random_blocks(rng, "Q8_0", 2, 64)
    for index, value in enumerate((6e-8, 3e-7, 6e4, 5e4)):
        blocks[index, :2] = np.array([value], "<f2").view(np.uint8)
    found = values_of(take_blocks(blocks, "Q8_0", (2, 64)))
    np.testing.assert_allclose(found, dequantize(blocks, "Q8_0").reshape(2, 64), rtol=1e-6)


TOKENS = np.random.default_rng(3).integers(3, 96, 40).tolist()


def logits_of(source, quantization):
    model = load_model(source, ReferenceOps(), "float32", quantization=quantization)
    return run_in_chunks(model, TOKENS, [len(TOKENS)], "float32"), model


@pytest.mark.parametrize("type_name", ["Q4_0", "Q4_1", "Q8_0", "F16"])
@pytest.mark.parametrize("architecture", ["llama", "granite"])
def test_a_model_taken_as_it_is_gives_almost_the_logits_of_its_values(
    tmp_path, type_name, architecture
):
    """What remains is the rounding of the activations; granite's multipliers become factors."""
    pytest.importorskip("gguf")
    from test_golden_gguf import CASES
    from tiny_gguf import make_tiny_gguf

    path = tmp_path / "tiny.gguf"
    make_tiny_gguf(path, architecture, CASES[architecture][1], quantisation=type_name)
    source = ModelSource("tiny", "gguf", path)
    expected, _ = logits_of(source, None)
    found, model = logits_of(source, "gguf")
    is_taken = type_name != "F16"
    assert (model.decoder._weights.layers[0].qkv.grouped is not None) == is_taken
    assert relative_error(found, expected) < 0.05
    assert np.array_equal(found, expected) != is_taken


def test_gguf_without_a_gguf_file_gets_a_sentence(tmp_path):
    make_tiny_llama(tmp_path / "hf")
    source = ModelSource("tiny", "hf", tmp_path / "hf")
    with pytest.raises(ModelError, match="quantization gguf needs a GGUF file"):
        logits_of(source, "gguf")


def test_int4_keeps_the_output_in_8_bits(tmp_path):
    make_tiny_llama(tmp_path / "hf")
    exact, _ = logits_of(ModelSource("tiny", "hf", tmp_path / "hf"), None)
    found, model = logits_of(ModelSource("tiny", "hf", tmp_path / "hf"), "int4")
    weights = model.decoder._weights
    assert weights.layers[0].down.dtype == "int4"
    assert weights.lm_head.dtype == "int8"
    assert 0 < np.std(found - exact) < 0.4 * np.std(exact)  # random weights are hard on 4 bits
