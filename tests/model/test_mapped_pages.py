"""Pages of a mapped file come and go; its contents stay what they are."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np

from headway.model.weights.store import map_file, release_pages
from headway.ops.memory import aligned_zeros


def _mapped_kib(path: Path) -> int:
    """Resident part of the mapping of `path` in this process."""
    lines = iter(Path("/proc/self/smaps").read_text().splitlines())
    for line in lines:
        if line.endswith(str(path)):
            return next(int(entry.split()[1]) for entry in lines if entry.startswith("Rss:"))
    return 0


def test_released_pages_are_gone_and_come_back(tmp_path):
    path = tmp_path / "weights"
    contents = np.random.default_rng(1).integers(0, 256, 64 * mmap.PAGESIZE, dtype=np.uint8)
    path.write_bytes(contents.tobytes())
    stored = map_file(path)
    assert np.array_equal(stored, contents)
    assert _mapped_kib(path) == len(contents) // 1024
    release_pages(stored[5:].view(np.uint8))
    assert _mapped_kib(path) == 0
    assert np.array_equal(stored, contents)


def test_memory_of_the_process_is_never_released():
    for array in (aligned_zeros((1 << 20,), np.uint8), np.zeros(1 << 20, np.uint8)):
        array[:] = 3
        release_pages(array[100:])
        array.flags.writeable = False
        release_pages(array[100:])
        assert (array == 3).all()
