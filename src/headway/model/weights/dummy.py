"""Random weights of the right shapes, for measuring speed without a download."""

from __future__ import annotations

import zlib

import numpy as np

from headway.model.weights.store import as_dtype
from headway.ops.interface import GroupedWeight, Raw


class DummyStore:
    """TensorStore whose values depend on the tensor's name alone."""

    origin = "dummy weights"

    def __init__(self, shapes: dict[str, tuple[int, ...]]) -> None:
        self._shapes = shapes

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        return self._shapes

    def release(self, name: str) -> None:
        """There is no file behind it."""

    def exact_dtype(self, name: str) -> str:
        return "float32"

    def grouped(self, name: str) -> GroupedWeight | None:
        return None

    def read(self, name: str, dtype: str) -> Raw:
        shape = self._shapes[name]
        random = np.random.default_rng(zlib.crc32(name.encode()))
        values = random.standard_normal(shape, dtype=np.float32)
        # Norm weights near one and rows of unit length keep activations in range at any depth.
        values = 1 + 0.1 * values if len(shape) == 1 else values * np.float32(shape[-1] ** -0.5)
        return as_dtype(values, dtype)
