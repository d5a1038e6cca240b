"""Takes the KV cache's memory from the system before a step would wait for it.

A block's keys and values lie in every layer's part of the cache, each in a page of 2 MiB: the first
block beyond those in use costs a step as many page faults as there are layers, twice. Each is 2 MiB
of zeros to write, and more in a virtual machine whose host has to find them.
"""

from __future__ import annotations

import os
import sys
import threading
import weakref
from collections.abc import Iterator

import numpy as np

from headway.engine.sizing import available_memory_bytes
from headway.ops.interface import KVCache
from headway.ops.memory import Bytes, populate

_PIECE = 2 << 20
_LEFT_FOR_OTHERS = 1 << 30  # bytes of memory below which it leaves the rest to when it is needed
_NICENESS = 10


def populate_in_background(cache: KVCache) -> threading.Thread:
    """Start a thread that ends with the last page, or when the cache is gone."""
    arrays = weakref.ref(cache.keys), weakref.ref(cache.values)
    thread = threading.Thread(target=_run, args=arrays, name="populate KV cache", daemon=True)
    thread.start()
    return thread


def _run(*arrays: weakref.ref[np.ndarray]) -> None:
    _give_way()
    for start in range(0, max(_bytes_of_a_layer(array()) for array in arrays), _PIECE):
        if available_memory_bytes() < _LEFT_FOR_OTHERS:
            return
        for array in arrays:
            for piece in _pieces(array(), start):
                if not populate(piece):
                    return


def _pieces(array: np.ndarray | None, start: int) -> Iterator[Bytes]:
    """One of each layer: blocks are handed out in this order."""
    if array is None:
        return
    layers = array.view(np.uint8).reshape(len(array), -1)
    yield from layers[:, start : start + _PIECE]


def _bytes_of_a_layer(array: np.ndarray | None) -> int:
    return 0 if array is None else array.nbytes // len(array)


def _give_way() -> None:
    """Steps come first. Linux has a priority for each thread; elsewhere it would be everybody's."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
