"""Arrays for weights and the KV cache: zero, aligned, apart from each other, freed."""

from __future__ import annotations

import gc
import weakref

import numpy as np
import pytest

from headway.ops.memory import CACHE_LINE, aligned_zeros


@pytest.mark.parametrize("count", [1, 63, 1000, 5 << 20])
def test_zeroed_and_at_a_cache_line(count: int) -> None:
    array = aligned_zeros((count, 2), np.float32)
    assert array.shape == (count, 2)
    assert array.dtype == np.float32
    assert array.ctypes.data % CACHE_LINE == 0
    assert not array.any()


def test_neighbours_do_not_share_memory() -> None:
    arrays = [aligned_zeros((size,), np.uint16) for size in (1, 31, 33, 4096, 5)]
    for value, array in enumerate(arrays):
        array[:] = value + 1
    for value, array in enumerate(arrays):
        assert (array == value + 1).all()


def test_a_large_array_gives_its_memory_back() -> None:
    array = aligned_zeros((32 << 20,), np.uint8)
    mapping = weakref.ref(array.base)
    del array
    gc.collect()
    assert mapping() is None


def test_more_than_the_system_has_is_a_memory_error() -> None:
    with pytest.raises(MemoryError, match="cannot map"):
        aligned_zeros((1 << 62,), np.uint8)
