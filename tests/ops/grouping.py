"""Random weights with a scale for each group, and what such a weight stands for."""

from __future__ import annotations

import numpy as np

from headway.ops import catalog
from headway.ops.grouped import FORMATS
from headway.ops.interface import GroupedWeight


def random_weight(rng, name, n, k):
    format = FORMATS[name]
    shape = (n, format.groups_of(k))
    scales = (catalog.normal(rng, *shape) * 0.01).astype(np.float16)
    minimums = (catalog.normal(rng, *shape) * 0.1).astype(np.float16)
    return GroupedWeight(
        name,
        rng.integers(0, 1 << format.bits, (n, k), dtype=np.uint8),
        scales,
        minimums if format.has_minimum else None,
        catalog.normal(rng, n),
    )


def values_of(weight):
    """What the weight stands for, in float64."""
    format, width = FORMATS[weight.format], weight.numbers.shape[1]

    def spread(halves):
        return np.repeat(halves.astype(np.float64), format.group, axis=1)[:, :width]

    values = (weight.numbers.astype(np.float64) - format.zero) * spread(weight.scales)
    if weight.minimums is not None:
        values += spread(weight.minimums)
    return values * weight.factors[:, None].astype(np.float64)
