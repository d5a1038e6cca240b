"""Least squares with coefficients that are not negative."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

F64 = npt.NDArray[np.float64]
_TOLERANCE = 1e-10


def non_negative_least_squares(matrix: F64, target: F64) -> F64:
    """The x >= 0 with the least |matrix x - target|; matrix [rows, columns], x [columns].

    Lawson and Hanson, Solving Least Squares Problems (1974), chapter 23, on the normal equations
    as Bro and de Jong (J. Chemometrics 11, 1997) have it. Columns are scaled to length 1 first. A
    column of zeros gets 0.
    """
    lengths = np.linalg.norm(matrix, axis=0)
    scale = np.where(lengths > 0, lengths, 1.0)
    scaled = matrix / scale
    return _solve(scaled.T @ scaled, scaled.T @ target) / scale


def _solve(gram: F64, moments: F64) -> F64:
    """Free the column that helps most, solve for the free ones, step back where one turns negative.

    Every round lowers the error, so that no set of free columns comes twice.
    """
    count = len(moments)
    x = np.zeros(count)
    is_free = np.zeros(count, dtype=bool)
    enough = _TOLERANCE * max(1.0, float(np.abs(moments).max(initial=0.0)))
    for _ in range(3 * count + 10):
        gain = np.where(is_free, -np.inf, moments - gram @ x)
        best = int(gain.argmax()) if count else 0
        if not count or gain[best] <= enough:
            break
        is_free[best] = True
        _settle(gram, moments, x, is_free)
    return x


def _settle(gram: F64, moments: F64, x: F64, is_free: npt.NDArray[np.bool_]) -> None:
    """Move x to the best point of the free columns that has nothing negative, freezing zeros."""
    while is_free.any():
        wanted = np.zeros(len(x))
        free = np.flatnonzero(is_free)
        wanted[free] = np.linalg.lstsq(gram[np.ix_(free, free)], moments[free], rcond=1e-13)[0]
        falling = free[wanted[free] <= 0]
        if not len(falling):
            x[:] = wanted
            return
        share = (x[falling] / np.maximum(x[falling] - wanted[falling], 1e-300)).min()
        x += share * (wanted - x)
        is_free &= x > _TOLERANCE
        x[~is_free] = 0.0
