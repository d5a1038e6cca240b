"""Rotary tables: known values, limits of each extension, and rows that never change."""

from __future__ import annotations

import numpy as np
import pytest

from headway.model.rope import RopeTables, inverse_frequencies, rotation
from headway.model.shape import RopeConfig

_PLAIN = RopeConfig(theta=10_000.0, rotary_dim=8)


def test_frequencies_are_powers_of_theta():
    np.testing.assert_allclose(inverse_frequencies(_PLAIN), [1, 0.1, 0.01, 0.001], rtol=1e-6)


def test_tables_are_cos_and_sin_of_position_times_frequency():
    tables = RopeTables(_PLAIN, 64)
    assert tables.cos.shape == tables.sin.shape == (64, 4)
    np.testing.assert_allclose(tables.cos[5, 1], np.cos(0.5), rtol=1e-6)
    np.testing.assert_allclose(tables.sin[63, 0], np.sin(63.0), rtol=1e-6)


def test_rows_keep_their_bits_when_the_tables_grow():
    tables = RopeTables(_PLAIN, 100_000)
    cos, sin = tables.cos, tables.sin
    tables.reach(len(cos) + 1)
    assert len(tables.cos) > len(cos)
    assert np.array_equal(tables.cos[: len(cos)], cos)
    assert np.array_equal(tables.sin[: len(sin)], sin)
    tables.reach(10**9)
    assert len(tables.cos) == 100_000


def test_linear_divides_every_frequency():
    linear = RopeConfig(theta=10_000.0, rotary_dim=8, kind="linear", factor=4.0)
    np.testing.assert_allclose(
        inverse_frequencies(linear), inverse_frequencies(_PLAIN) / 4, rtol=1e-7
    )


@pytest.mark.parametrize("kind", ["llama3", "yarn"])
def test_fast_waves_are_kept_and_slow_ones_stretched(kind):
    rope = RopeConfig(
        theta=10_000.0,
        rotary_dim=64,
        kind=kind,
        factor=8.0,
        original_max_position_embeddings=512,
    )
    ratio = inverse_frequencies(rope) / inverse_frequencies(
        RopeConfig(theta=10_000.0, rotary_dim=64)
    )
    np.testing.assert_allclose(ratio[0], 1, rtol=1e-6)
    np.testing.assert_allclose(ratio[-1], 1 / 8, rtol=1e-6)
    assert np.all(np.diff(ratio) <= 1e-6)


def test_yarn_scales_the_tables():
    rope = RopeConfig(theta=10_000.0, rotary_dim=8, attention_factor=1.25)
    assert RopeTables(rope, 4).cos[0, 0] == np.float32(1.25)


def test_identity_turns_nothing():
    turns_nothing = rotation(RopeTables(_PLAIN, 4), has_still_layers=True)
    cos, sin = turns_nothing.identity_cos, turns_nothing.identity_sin
    assert np.all(cos == 1)
    assert np.all(sin == 0)


def test_tables_that_turn_nothing_are_made_only_where_a_layer_needs_them():
    tables = RopeTables(_PLAIN, 4)
    assert rotation(tables, has_still_layers=False).identity_cos is tables.cos
