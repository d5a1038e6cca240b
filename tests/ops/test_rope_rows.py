"""rope_and_store: what a token writes is the same alone, together, and on any number of threads."""

from __future__ import annotations

import numpy as np
import pytest

from headway.ops import catalog
from headway.ops.cpu.backend import CpuOps
from tests.ops.comparing import assert_same_bits

SHAPES = [shape for shape in catalog.ROPE.shapes if shape["tokens"] > 1]


def write(ops, inputs, groups):
    """q rows, keys and values after writing the tokens group by group."""
    shape = inputs["shape"]
    cache = ops.new_kv_cache(2, 3, 32, shape["kv_heads"], shape["head_dim"], shape["dtype"])
    qkv = inputs["qkv"].copy()
    for group in groups:
        part = np.ascontiguousarray(qkv[group])
        ops.rope_and_store(
            part,
            inputs["positions"][group],
            inputs["kv_rows"][group],
            inputs["cos"],
            inputs["sin"],
            cache,
            1,
            num_heads=shape["heads"],
            q_norm=inputs["q_norm"],
            k_norm=inputs["k_norm"],
            interleaved=shape.get("interleaved", False),
        )
        qkv[group] = part
    return qkv, cache.keys, cache.values


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_tokens_are_written_alike_alone_and_together(any_ops, rng, shape):
    inputs = catalog.ROPE.inputs(rng, shape)
    tokens = np.arange(shape["tokens"])
    expected = write(any_ops, inputs, [tokens])
    for groups in (np.split(tokens, len(tokens)), [tokens[::2], tokens[1::2]], [tokens[::-1]]):
        for result, whole in zip(write(any_ops, inputs, groups), expected, strict=True):
            assert_same_bits(result, whole)


def test_threads_do_not_matter(ops, rng):
    shape = {"dtype": "bfloat16", "heads": 9, "kv_heads": 3, "tokens": 96, "head_dim": 64}
    inputs = catalog.ROPE.inputs(rng, shape)
    expected = write(CpuOps(ops.isa, num_threads=1), inputs, [np.arange(96)])
    result = write(CpuOps(ops.isa, num_threads=4), inputs, [np.arange(96)])
    for a, b in zip(result, expected, strict=True):
        assert_same_bits(a, b)


def test_values_and_dimensions_past_rotary_dim_stay_as_they_are(any_ops, rng):
    shape = catalog.ROPE.shapes[2]
    assert shape["rotary_dim"] < shape["head_dim"]
    inputs = catalog.ROPE.inputs(rng, shape)
    qkv, keys, values = write(any_ops, inputs, [np.arange(shape["tokens"])])
    still = inputs["qkv"].reshape(shape["tokens"], -1, shape["head_dim"])
    turned = qkv.reshape(still.shape)
    assert_same_bits(turned[:, :3, 32:], still[:, :3, 32:])
    tile, place = divmod(int(inputs["kv_rows"][5]), 16)
    np.testing.assert_array_equal(values[1, tile, 0, place], still[5, -1])
    np.testing.assert_array_equal(keys[1, tile, 0, 32:, place], still[5, 3, 32:])
