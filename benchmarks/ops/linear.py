"""Speed of `linear` on one instruction set, beside PyTorch's bfloat16 linear where it is installed.

    python benchmarks/ops/linear.py [--isa avx512_bf16] [--threads 2] [--dtype bfloat16]

Prints, per shape and number of rows M, the lower quartile of the times (others may use the
machine), the weights' bytes per second (what bounds a small M), and floating-point operations per
second (what bounds a large one). Weights are rotated so that the caches do not hold them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from headway.ops.cpu.backend import CpuOps

SHAPES = ((1536, 576), (576, 1536), (49152, 576), (4096, 4096))  # N, K
ROWS = (1, 8, 64, 256)
COLD_BYTES = 64 * 2**20
SECONDS = 0.4


def typical_seconds(calls: list[Callable[[], object]]) -> float:
    """Calls are made in turn, each once to warm up, then for about SECONDS in all."""
    for call in calls:
        call()
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        calls[len(times) % len(calls)]()
        times.append(time.perf_counter() - start)
    return float(np.quantile(times, 0.25))


def headway_calls(
    ops: CpuOps, x: np.ndarray, weights: list[np.ndarray], dtype: str
) -> list[Callable[[], object]]:
    out = np.empty((len(x), len(weights[0])), np.float32)
    packed = [ops.pack_linear(weight, None, dtype) for weight in weights]
    return [lambda weight=weight: ops.linear(x, weight, out) for weight in packed]


def torch_calls(
    x: np.ndarray, weights: list[np.ndarray], threads: int
) -> list[Callable[[], object]]:
    try:
        import torch
    except ImportError:
        return []
    torch.set_num_threads(threads)
    rows = torch.from_numpy(x).bfloat16()
    tensors = [torch.from_numpy(weight).bfloat16() for weight in weights]
    return [lambda weight=weight: torch.nn.functional.linear(rows, weight) for weight in tensors]


def line(name: str, seconds: float, n: int, k: int, m: int, bytes_per_weight: int) -> str:
    gigabytes = n * k * bytes_per_weight / seconds / 1e9
    gigaflops = 2 * n * k * m / seconds / 1e9
    return f"{name:24} {n:6} {k:5} {m:4} {seconds * 1e6:10.1f} {gigabytes:7.1f} {gigaflops:8.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float32"))
    arguments = parser.parse_args()
    ops = CpuOps(arguments.isa, arguments.threads)
    size = 2 if arguments.dtype == "bfloat16" else 4
    rng = np.random.default_rng(0)
    print(f"{'backend':24} {'N':>6} {'K':>5} {'M':>4} {'us':>10} {'GB/s':>7} {'GFLOP/s':>8}")
    for n, k in SHAPES:
        copies = max(1, min(24, COLD_BYTES // (n * k * size)))
        weights = [rng.standard_normal((n, k), dtype=np.float32) for _ in range(copies)]
        for m in ROWS:
            x = rng.standard_normal((m, k), dtype=np.float32)
            calls = headway_calls(ops, x, weights, arguments.dtype)
            name = f"{ops.name} x{ops.num_threads}"
            print(line(name, typical_seconds(calls), n, k, m, size))
            rivals = torch_calls(x, weights, ops.num_threads)
            if rivals:
                print(line("torch bfloat16", typical_seconds(rivals), n, k, m, 2))


if __name__ == "__main__":
    main()
