"""Logarithm, exponential and normal deviates whose last bit is the same on every machine.

They use only what IEEE 754 rounds correctly, one operation at a time: no maths library, no fused
multiply-add, no vector version of a function that differs from its scalar one. Arrival times are
made of them, and a time that differs by a nanosecond can change a decision.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

# ln 2 in two parts; the first has so many zeros at its end that a small multiple of it is exact.
_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_SQRT_HALF = float.fromhex("0x1.6a09e667f3bcdp-1")
_NUM_LOG_TERMS = 12
_NUM_EXP_TERMS = 14
_LEAST_EXPONENT = -690.0


def log(x: Floats) -> Floats:
    """ln x for x > 0, within a few units in the last place."""
    fraction, exponent = np.frexp(x)
    small = fraction < _SQRT_HALF
    fraction = np.where(small, fraction * 2.0, fraction)
    exponent = exponent - small
    t = (fraction - 1.0) / (fraction + 1.0)
    square = t * t
    series = np.full_like(t, 1.0 / (2 * _NUM_LOG_TERMS + 1))
    for term in range(_NUM_LOG_TERMS - 1, -1, -1):
        series = series * square
        series = series + 1.0 / (2 * term + 1)
    return exponent * _LN2_HIGH + (exponent * _LN2_LOW + (t + t) * series)


def exp(x: Floats) -> Floats:
    """e^x for x <= 700, within a few units in the last place; 0 below e^-690."""
    clipped = np.maximum(x, _LEAST_EXPONENT)
    doublings = np.rint(clipped / (_LN2_HIGH + _LN2_LOW))
    rest = (clipped - doublings * _LN2_HIGH) - doublings * _LN2_LOW
    series = np.ones_like(rest)
    for term in range(_NUM_EXP_TERMS, 0, -1):
        series = series * rest
        series = series / term
        series = series + 1.0
    return np.where(x < _LEAST_EXPONENT, 0.0, np.ldexp(series, doublings.astype(np.int32)))


def exponentials(uniforms: Floats) -> Floats:
    """Exponential deviates of mean 1 from uniforms in [0, 1)."""
    return -log(1.0 - uniforms)


def normals(first: Floats, second: Floats) -> tuple[Floats, NDArray[np.bool_]]:
    """Standard normal deviates from pairs of uniforms by the polar method, and which are valid.

    A pair outside the unit circle gives none; more than three quarters are inside.
    """
    x, y = first + first - 1.0, second + second - 1.0
    square = x * x
    square = square + y * y
    inside = (square < 1.0) & (square > 0.0)
    safe = np.where(inside, square, 0.5)
    return x * np.sqrt(-2.0 * log(safe) / safe), inside
