"""sample: the twin's token, unless the draw falls within rounding of a boundary."""

from __future__ import annotations

import numpy as np
import pytest

from headway.ops.catalog import normal
from headway.ops.cpu.backend import CpuOps
from headway.ops.reference.philox import philox4x32, uniform
from tests.ops.comparing import assert_same_bits

SETTINGS = (  # temperature, top_k, top_p, min_p
    (1.0, 0, 1.0, 0.0),
    (0.7, 40, 1.0, 0.0),
    (1.3, 0, 0.9, 0.0),
    (1.0, 0, 1.0, 0.05),
    (0.8, 50, 0.95, 0.02),
    (1.0, 1, 1.0, 0.0),
    (0.0, 0, 1.0, 0.0),
    (1e-30, 0, 1.0, 0.0),
    (100.0, 0, 0.5, 0.0),
)


def draw(ops, logits, setting, *, seeds=None, first_position=0):
    rows = len(logits)
    temperature, top_k, top_p, min_p = setting
    out = np.full(rows, -1, np.int32)
    ops.sample(
        logits,
        np.full(rows, temperature, np.float32),
        np.full(rows, top_k, np.int32),
        np.full(rows, top_p, np.float32),
        np.full(rows, min_p, np.float32),
        np.full(rows, 11, np.uint64) if seeds is None else seeds,
        np.arange(first_position, first_position + rows, dtype=np.int64),
        out,
    )
    return out


def test_philox_gives_the_published_numbers():
    """Known answers from the Random123 distribution (kat_vectors, philox4x32 10)."""
    ones = 0xFFFFFFFF
    assert philox4x32((0, 0, 0, 0), (0, 0)) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert philox4x32((ones,) * 4, (ones,) * 2) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)


def test_uniform_is_uniform():
    numbers = np.array([uniform(5, position) for position in range(4000)])
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts = np.histogram(numbers, bins=10, range=(0, 1))[0]
    assert ((counts - 400) ** 2 / 400).sum() < 35  # chi-square, 9 degrees of freedom: p < 1e-4


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("width", [1, 17, 1000])
def test_same_token_as_the_twin(ops, twin, rng, width, setting):
    logits = normal(rng, 60, width) * np.float32(4)
    different = draw(ops, logits, setting) != draw(twin, logits, setting)
    # Weights are off by some 1e-6, so a draw in [0, 1) may rarely fall on the other side.
    assert different.sum() <= 1


WIDE = 20_000


def peaked(rng, rows):
    ranks = np.argsort(rng.random((rows, WIDE)), axis=1)
    return (-2 * np.log1p(ranks)).astype(np.float32)


def mostly_masked(rng, rows):
    logits = normal(rng, rows, WIDE) * np.float32(3)
    logits[:, rng.random(WIDE) < 0.7] = -np.inf
    logits[0, 5:] = -np.inf
    logits[1, ::7] = np.nan
    return logits


def of_few_values(rng, rows):
    return np.round(normal(rng, rows, WIDE)).astype(np.float32)


@pytest.mark.parametrize("rows_of", [peaked, mostly_masked, of_few_values])
@pytest.mark.parametrize(
    "setting", [*SETTINGS, (1.0, 9000, 1.0, 0.0), (1.0, 0, 0.999, 1e-9), (50.0, 15_000, 0.99, 0.3)]
)
def test_same_token_as_the_twin_wherever_in_a_wide_row_the_cut_and_the_draw_fall(
    ops, twin, rng, rows_of, setting
):
    logits = rows_of(rng, 40)
    result = draw(ops, logits, setting)
    assert (result != draw(twin, logits, setting)).sum() <= 1
    assert (logits[np.arange(40), result] > -np.inf).all()


def test_every_position_and_seed_draws_its_own_number(ops, twin):
    logits = np.zeros((200, 997), np.float32)
    seeds = (np.arange(200, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(1)
    result = draw(ops, logits, (1.0, 0, 1.0, 0.0), seeds=seeds, first_position=2**32 - 100)
    expected = draw(twin, logits, (1.0, 0, 1.0, 0.0), seeds=seeds, first_position=2**32 - 100)
    assert (result != expected).sum() <= 1
    assert len(np.unique(result)) > 150


def test_frequencies_follow_the_probabilities(any_ops):
    logits = np.log(np.array([0.5, 0.25, 0.125, 0.125], np.float32))
    tokens = draw(any_ops, np.tile(logits, (4000, 1)), (1.0, 0, 1.0, 0.0))
    expected = np.array([2000, 1000, 500, 500])
    counts = np.bincount(tokens, minlength=4)
    assert ((counts - expected) ** 2 / expected).sum() < 22  # 3 degrees of freedom: p < 1e-4


def test_filters_keep_what_they_say(any_ops):
    logits = np.tile(np.log(np.array([0.1, 0.4, 0.3, 0.2], np.float32)), (400, 1))

    def kept(setting):
        return set(draw(any_ops, logits, setting).tolist())

    assert kept((1.0, 2, 1.0, 0.0)) == {1, 2}
    assert kept((1.0, 0, 0.65, 0.0)) == {1, 2}
    assert kept((1.0, 0, 0.75, 0.0)) == {1, 2, 3}
    assert kept((1.0, 0, 1.0, 0.6)) == {1, 2}
    assert kept((1.0, 3, 0.5, 0.0)) == {1, 2}  # 0.4 of 0.9 is short of a half


def test_ties_go_to_the_lower_id(any_ops):
    logits = np.zeros((50, 300), np.float32)
    assert set(draw(any_ops, logits, (1.0, 2, 1.0, 0.0)).tolist()) == {0, 1}


def test_masked_and_broken_logits(any_ops):
    logits = np.full((5, 40), -np.inf, np.float32)
    logits[0, 7] = 1.0  # the only one allowed
    logits[1, 3] = np.inf
    logits[2, :] = np.nan  # a row of nothing yields id 0
    logits[4, :] = np.nan
    logits[4, 39] = -5.0
    assert draw(any_ops, logits, (1.0, 0, 0.9, 0.1)).tolist() == [7, 3, 0, 0, 39]
    out = np.empty(5, np.int32)
    any_ops.argmax(logits, out)
    assert out.tolist() == [7, 3, 0, 0, 39]


def test_a_row_does_not_know_its_neighbours_or_threads(ops, rng):
    logits = normal(rng, 33, 3000) * np.float32(3)
    setting = (0.9, 200, 0.95, 0.01)
    together = draw(ops, logits, setting)
    for i in range(33):
        assert draw(ops, logits[i : i + 1], setting, first_position=i)[0] == together[i]
    assert_same_bits(draw(CpuOps(ops.isa, num_threads=1), logits, setting), together)
