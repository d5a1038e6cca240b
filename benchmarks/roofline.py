"""What does this machine allow, and how much of it does `linear` get?

    python benchmarks/roofline.py [--isa avx512] [--threads 2]

Builds and runs roofline.cpp (needs g++ and AVX-512): read bandwidth of 1 GiB with small and huge
pages, peaks of float32 FMA and of the bfloat16 and int8 dot products, on one and on two threads.
Then `linear` in bfloat16 on the shapes of SmolLM2-135M, each figure as a share of the best read
bandwidth and of the best peak for bfloat16 operands on as many threads, measured in the same run:
the ceilings in time that a thread had a core, `linear` in wall time, so leave the machine alone.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parent / "ops"))
from linear import COLD_BYTES, headway_calls, typical_seconds

from headway.ops.cpu.backend import CpuOps

SHAPES = ((960, 576), (3072, 576), (576, 1536), (49152, 576))  # N, K
ROWS = (1, 4, 16, 64, 256)
SOURCE = Path(__file__).with_suffix(".cpp")

Ceilings = dict[tuple[str, int], float]


def measure() -> Ceilings:
    """(name, threads) → GB/s or GFLOP/s."""
    with tempfile.TemporaryDirectory() as folder:
        program = str(Path(folder) / "roofline")
        flags = ["-O3", "-march=native", "-std=c++20", "-pthread"]
        subprocess.run(["g++", *flags, str(SOURCE), "-o", program], check=True)
        done = subprocess.run([program], check=True, capture_output=True, text=True)
    lines = [line.split() for line in done.stdout.splitlines()]
    return {(name, int(threads)): float(value) for name, threads, value in lines}


def best(ceilings: Ceilings, names: tuple[str, ...], threads: int) -> float:
    return max(
        value for (name, count), value in ceilings.items() if name in names and count == threads
    )


def shares(ops: CpuOps, ceilings: Ceilings) -> None:
    threads = min(2, ops.num_threads)
    bandwidth = best(ceilings, ("read_small_pages", "read_huge_pages"), threads)
    peak = best(ceilings, ("float32_fma", "bfloat16_dot"), threads)
    rng = np.random.default_rng(0)
    print(f"{ops.name} x{ops.num_threads}: of {bandwidth:.1f} GB/s and {peak:.0f} GFLOP/s")
    for n, k in SHAPES:
        copies = max(1, COLD_BYTES * 5 // (n * k * 2))
        weight = rng.standard_normal((n, k), dtype=np.float32)
        for m in ROWS:
            x = rng.standard_normal((m, k), dtype=np.float32)
            seconds = typical_seconds(headway_calls(ops, x, [weight] * copies, "bfloat16"))
            read, done = n * k * 2 / seconds / 1e9, 2 * n * k * m / seconds / 1e9
            print(
                f"{n:6} {k:5} {m:4} {seconds * 1e6:10.1f} us {read:6.1f} GB/s"
                f" {read / bandwidth:5.0%} {done:7.1f} GFLOP/s {done / peak:5.0%}",
                flush=True,
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa")
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    ceilings = measure()
    for (name, threads), value in ceilings.items():
        unit = "GB/s" if name.startswith("read") else "GFLOP/s"
        print(f"{name:18} x{threads} {value:8.1f} {unit}")
    shares(CpuOps(arguments.isa, arguments.threads), ceilings)


if __name__ == "__main__":
    main()
