"""What an int8 KV cache holds: whole numbers and a scale for each token and head."""

from __future__ import annotations

import numpy as np
import pytest

from headway.ops.catalog import normal
from headway.ops.reference.backend import ReferenceOps
from headway.ops.reference.kv_layout import read_tokens
from tests.ops.comparing import assert_same_bits

HEADS, KV_HEADS, HEAD_DIM, TOKENS = 4, 2, 24, 20
KV_ROWS = np.random.default_rng(1).permutation(96)[:TOKENS].astype(np.int64)


def stored(ops, qkv, groups=None):
    """The cache after these tokens were written, group by group, without turning them."""
    cache = ops.new_kv_cache(2, 3, 32, KV_HEADS, HEAD_DIM, "int8")
    for group in groups or [np.arange(TOKENS)]:
        still = np.zeros((len(group), HEAD_DIM // 2), np.float32)
        positions = np.arange(len(group), dtype=np.int32)
        rows = np.ascontiguousarray(qkv[group])
        ops.rope_and_store(
            rows, positions, KV_ROWS[group], np.cos(still), np.sin(still), cache, 1, num_heads=HEADS
        )
    return cache


def keys_and_values(qkv):
    heads = qkv.reshape(TOKENS, HEADS + 2 * KV_HEADS, HEAD_DIM)
    return heads[:, HEADS : HEADS + KV_HEADS], heads[:, HEADS + KV_HEADS :]


@pytest.fixture
def qkv(rng):
    return normal(rng, TOKENS, (HEADS + 2 * KV_HEADS) * HEAD_DIM)


def test_every_instruction_set_stores_what_the_twin_stores(ops, qkv):
    found, expected = stored(ops, qkv), stored(ReferenceOps(), qkv)
    assert_same_bits(found.keys, expected.keys)
    assert_same_bits(found.values, expected.values)


def test_stored_values_are_off_by_half_a_step_at_most(any_ops, qkv):
    cache = stored(any_ops, qkv)
    for found, exact in zip(read_tokens(cache, 1, KV_ROWS), keys_and_values(qkv), strict=True):
        step = np.abs(exact).max(axis=-1, keepdims=True) / 127
        assert (np.abs(found - exact) <= step * 0.5001).all()
    assert not cache.keys[0].any()


def test_tokens_are_stored_alike_alone_and_together(any_ops, qkv):
    whole, one_by_one = stored(any_ops, qkv), stored(any_ops, qkv, list(np.arange(TOKENS)[:, None]))
    assert_same_bits(one_by_one.keys, whole.keys)
    assert_same_bits(one_by_one.values, whole.values)


def test_zeros_and_what_is_no_number(any_ops, qkv):
    key, value = keys_and_values(qkv)
    key[3] = 0
    value[3, 1] = 0
    key[4, 0, 5] = np.nan
    value[5, 0, 5] = np.inf
    found_key, found_value = read_tokens(stored(any_ops, qkv), 1, KV_ROWS)
    assert not found_key[3].any()
    assert not found_value[3, 1].any()
    assert np.isnan(found_key[4, 0]).all()
    assert np.isnan(found_value[5, 0]).all()
    assert np.isfinite(found_key[4, 1]).all()


def test_a_head_dim_that_does_not_come_in_fours_is_refused(any_ops):
    with pytest.raises(ValueError, match="multiple of 4, got 10"):
        any_ops.new_kv_cache(1, 1, 16, 1, 10, "int8")
