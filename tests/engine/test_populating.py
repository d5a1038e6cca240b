"""The KV cache's memory is there before a step would wait for it."""

import gc
import sys
from pathlib import Path

import numpy as np
import pytest

from headway.engine import populating
from headway.ops.cache import new_kv_cache
from headway.ops.interface import KVCache

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has the call")

MIB = 1 << 20


@pytest.fixture(autouse=True)
def free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(populating, "available_memory_bytes", lambda: 2048 * MIB)


def cache_of_48_mib() -> KVCache:
    return new_kv_cache(4, 384, 16, 8, 64, "bfloat16")


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def test_all_of_it_is_resident_and_keeps_what_lies_there():
    cache = cache_of_48_mib()
    cache.keys[3, 200, 5] = 7
    before = resident_bytes()
    populating.populate_in_background(cache).join()
    assert cache.keys.nbytes + cache.values.nbytes == 48 * MIB
    assert resident_bytes() - before > 40 * MIB
    assert np.count_nonzero(cache.keys) == cache.keys[3, 200, 5].size
    assert (cache.keys[3, 200, 5] == 7).all()


def test_the_first_blocks_of_all_layers_come_first(monkeypatch: pytest.MonkeyPatch):
    cache = cache_of_48_mib()
    seen: list[int] = []

    def populate(piece: np.ndarray) -> bool:
        seen.append(piece.ctypes.data)
        return True

    monkeypatch.setattr(populating, "populate", populate)
    populating.populate_in_background(cache).join()
    starts = [layer.ctypes.data for array in (cache.keys, cache.values) for layer in array]
    assert seen[:8] == starts
    assert seen[8:16] == [start + 2 * MIB for start in starts]


def test_what_cannot_be_had_or_is_needed_by_others_is_left(monkeypatch: pytest.MonkeyPatch):
    cache, calls = cache_of_48_mib(), list[int]()
    monkeypatch.setattr(populating, "populate", lambda piece: bool(calls.append(1)))
    populating.populate_in_background(cache).join()
    assert len(calls) == 1
    monkeypatch.setattr(populating, "available_memory_bytes", lambda: 900 * MIB)
    populating.populate_in_background(cache).join()
    assert len(calls) == 1


def test_a_cache_that_nobody_holds_is_let_go(monkeypatch: pytest.MonkeyPatch):
    caches = [cache_of_48_mib()]
    num_pieces = 0

    def populate(piece: np.ndarray) -> bool:
        nonlocal num_pieces
        num_pieces += 1
        caches.clear()
        gc.collect()
        return True

    monkeypatch.setattr(populating, "populate", populate)
    populating.populate_in_background(caches[0]).join()
    assert not caches
    assert num_pieces <= 8  # of 24: those of the array at hand
