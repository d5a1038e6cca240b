"""paged_attention is close to its twin, and what a token must not see does not reach it."""

from __future__ import annotations

import numpy as np
import pytest

from headway.ops.catalog import BF16_UNIT, EXP_ERROR, UNIT
from headway.ops.interface import KVCache
from headway.ops.reference.backend import ReferenceOps
from tests.ops.comparing import assert_close
from tests.ops.paged import World, make_world, store

DTYPES = ("float32", "bfloat16", "int8")
INT8_UNIT = 1 / (2 * 127 * 128)  # of the whole numbers that queries and weights become
# heads, kv_heads, head_dim
SHAPES = ((1, 1, 8), (3, 1, 64), (8, 1, 16), (6, 2, 80), (4, 4, 128), (20, 1, 24), (2, 1, 256))


def bound_of(world, length):
    """Scores off by eps make weights off by exp(eps) - 1; then sums of `length`, and rounding."""
    head_dim = world.cache.head_dim
    largest = max(float(np.abs(rows).max()) for rows in world.qkv)
    score_error = 2 * UNIT * (head_dim + 4) * head_dim**0.5 * largest**2
    weight_error = 2 * score_error + EXP_ERROR + 4 * UNIT * (length + 4)
    if world.cache.dtype == "bfloat16":
        weight_error += 2 * BF16_UNIT
    if world.cache.dtype == "int8":
        weight_error += 2 * INT8_UNIT * head_dim**0.5 * largest**2 + INT8_UNIT * length
    return weight_error * largest


def twin_of(world: World) -> World:
    return World(ReferenceOps(), world.cache, world.qkv, world.tables, world.num_heads)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), SHAPES)
@pytest.mark.parametrize("window", [0, 1, 5, 16, 21])
def test_close_to_the_twin(ops, heads, kv_heads, head_dim, dtype, window):
    lengths = (41, 1, 16)
    world = make_world(
        ops, 7, lengths, dtype=dtype, heads=heads, kv_heads=kv_heads, head_dim=head_dim
    )
    chunks = [(0, 0, 41), (1, 0, 1), (2, 15, 16)]
    expected = twin_of(world).attend(chunks, window=window)
    for result, row in zip(world.attend(chunks, window=window), expected, strict=True):
        assert np.isfinite(row).all()
        assert_close(result, row, bound_of(world, 41))


@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_survives_large_scores(ops, dtype):
    world = make_world(ops, 3, (40,), dtype=dtype, head_dim=64)
    loud = World(ops, world.cache, [world.qkv[0] * 100], world.tables, 3)
    result = loud.attend([(0, 0, 40)])[0]
    assert np.isfinite(result).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("window", [0, 300])
def test_close_to_the_twin_over_several_spans(ops, dtype, window):
    world = make_world(ops, 11, (600,), dtype=dtype, heads=6, kv_heads=2, head_dim=64)
    chunks = [(0, 240, 280), (0, 511, 512), (0, 599, 600)]
    expected = twin_of(world).attend(chunks, window=window)
    for result, rows in zip(world.attend(chunks, window=window), expected, strict=True):
        assert_close(result, rows, bound_of(world, 600))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("garbage", [np.nan, np.inf, 3e38])
def test_stale_places_of_the_cache_do_not_leak(any_ops, dtype, garbage):
    clean = make_world(any_ops, 5, (37, 3), dtype=dtype, garbage=0.0)
    dirty = make_world(any_ops, 5, (37, 3), dtype=dtype, garbage=garbage)
    chunks = [(0, 0, 37), (1, 2, 3)]
    for a, b in zip(clean.attend(chunks), dirty.attend(chunks), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_poisoned_later_token_does_not_reach_earlier_ones(any_ops, dtype):
    world = make_world(any_ops, 5, (37,), dtype=dtype)
    before = world.attend([(0, 0, 37)])[0]
    poisoned = [world.qkv[0].copy()]
    poisoned[0][20:] = np.nan
    other = make_world(any_ops, 5, (37,), dtype=dtype)
    store(any_ops, other.cache, poisoned[0], other.tables[0], 3)
    after = World(any_ops, other.cache, poisoned, other.tables, 3).attend([(0, 0, 37)])[0]
    np.testing.assert_array_equal(after[:20], before[:20])
    assert np.isnan(after[20:]).all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_window_hides_what_lies_before_it(any_ops, dtype):
    """Tokens before the window may even be NaN."""
    world = make_world(any_ops, 9, (40,), dtype=dtype)
    expected = world.attend([(0, 39, 40)], window=8)[0]
    early = world.qkv[0][:30].copy()
    early[:] = np.nan
    store(any_ops, world.cache, early, world.tables[0], 3)
    np.testing.assert_array_equal(world.attend([(0, 39, 40)], window=8)[0], expected)


def test_no_tokens_at_all(any_ops):
    world = make_world(any_ops, 1, (5,), dtype="bfloat16")
    assert world.attend([(0, 3, 3)])[0].shape == (0, 48)


def test_cache_layout_is_the_one_in_the_interface(any_ops):
    cache: KVCache = any_ops.new_kv_cache(2, 3, 32, 4, 10, "bfloat16")
    assert cache.keys.shape == (2, 6, 4, 5, 16, 2)
    assert cache.values.shape == (2, 6, 4, 8, 10, 2)
    cache = any_ops.new_kv_cache(2, 3, 32, 4, 10, "float32")
    assert cache.keys.shape == (2, 6, 4, 10, 16)
    assert cache.values.shape == (2, 6, 4, 16, 10)
    cache = any_ops.new_kv_cache(2, 3, 32, 4, 12, "int8")
    assert cache.keys.shape == (2, 6, 4, 5, 16, 4)
    assert cache.values.shape == (2, 6, 4, 4, 12, 4)
    assert cache.head_dim == 12
