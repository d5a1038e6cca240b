"""Non-negative least squares against every choice of columns, and against its own conditions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.simulator.step_time.least_squares import non_negative_least_squares


def error(matrix, target, x) -> float:
    return float(np.linalg.norm(matrix @ x - target))


def best_by_trying_all(matrix, target) -> float:
    """The least error of all choices of columns whose plain solution has nothing negative."""
    columns = range(matrix.shape[1])
    choices = itertools.chain.from_iterable(
        itertools.combinations(columns, count) for count in range(1, len(columns) + 1)
    )
    errors = [float(np.linalg.norm(target))]
    for choice in map(list, choices):
        part = np.linalg.lstsq(matrix[:, choice], target, rcond=None)[0]
        if (part >= 0).all():
            errors.append(error(matrix[:, choice], target, part))
    return min(errors)


@given(st.integers(0, 10**6), st.integers(1, 5), st.integers(1, 12))
def test_it_is_as_good_as_the_best_choice_of_columns(seed, num_columns, num_rows):
    rng = np.random.default_rng(seed)
    matrix = rng.standard_normal((num_rows, num_columns)) * 10.0 ** rng.integers(-3, 7, num_columns)
    target = rng.standard_normal(num_rows)
    x = non_negative_least_squares(matrix, target)
    assert (x >= 0).all()
    assert error(matrix, target, x) <= best_by_trying_all(matrix, target) + 1e-6


@given(st.integers(0, 10**6), st.integers(1, 12))
def test_known_coefficients_are_found(seed, num_columns):
    rng = np.random.default_rng(seed)
    matrix = rng.uniform(0, 1, (60, num_columns))
    wanted = rng.uniform(0, 5, num_columns) * (rng.random(num_columns) < 0.6)
    found = non_negative_least_squares(matrix, matrix @ wanted)
    assert found == pytest.approx(wanted, abs=1e-5)


def test_equal_columns_and_columns_of_zeros_do_no_harm():
    column = np.arange(1.0, 9.0)
    matrix = np.stack([column, column, np.zeros(8), np.ones(8)], axis=1)
    x = non_negative_least_squares(matrix, 3 * column + 2)
    assert matrix @ x == pytest.approx(3 * column + 2)
    assert x[2] == 0


def test_what_would_be_negative_is_nothing():
    matrix = np.stack([np.ones(5), np.arange(5.0)], axis=1)
    assert non_negative_least_squares(matrix, -np.ones(5)).tolist() == [0, 0]
    falling = non_negative_least_squares(matrix, 10 - np.arange(5.0))
    assert falling == pytest.approx([8, 0])
