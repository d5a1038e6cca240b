"""What does this machine allow?

    python benchmarks/roofline.py

Builds and runs roofline.cpp (needs g++ and AVX-512): read bandwidth of 1 GiB with small and huge
pages, peaks of float32 FMA and of the bfloat16 and int8 dot products, on one and on two threads, in
time that a thread had a core. What `linear` gets of it: benchmarks/ops/linear.py.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".cpp")

Ceilings = dict[tuple[str, int], float]


@contextmanager
def built() -> Iterator[str]:
    """The program, as long as it is needed."""
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "roofline")
        flags = ["-O3", "-march=native", "-std=c++20", "-pthread"]
        subprocess.run(["g++", *flags, str(SOURCE), "-o", program], check=True)
        yield program


def measure() -> Ceilings:
    """(name, threads) → GB/s or GFLOP/s."""
    with built() as program:
        done = subprocess.run([program], check=True, capture_output=True, text=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    return {(name, int(threads)): float(value) for name, threads, value in lines}


def best(ceilings: Ceilings, names: tuple[str, ...], threads: int) -> float:
    return max(
        value for (name, count), value in ceilings.items() if name in names and count == threads
    )


def main() -> None:
    for (name, threads), value in measure().items():
        unit = "GB/s" if name.startswith("read") else "GFLOP/s"
        print(f"{name:18} x{threads} {value:8.1f} {unit}")


if __name__ == "__main__":
    main()
