"""Speed of `linear` on one instruction set, beside PyTorch's bfloat16 linear where it is installed.

    python benchmarks/ops/linear.py [--isa avx512_bf16] [--threads 2] [--dtype bfloat16 int8]

Prints, per shape, number of rows M and dtype of the weights, the lower quartile of the times
(others may use the machine), the weights' bytes per second (what bounds a small M), and operations
per second (what bounds a large one). All that are compared take turns, call by call. Weights are
rotated so that the caches do not hold them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from headway.ops.cpu.backend import CpuOps

SHAPES = ((1536, 576), (576, 1536), (49152, 576), (4096, 4096))  # N, K
ROWS = (1, 8, 64, 256)
BYTES = {"float32": 4, "bfloat16": 2, "int8": 1}
COLD_BYTES = 64 * 2**20
SECONDS = 0.4


Calls = list[Callable[[], object]]


def typical_seconds(rivals: dict[str, Calls]) -> dict[str, float]:
    """Each rival's calls in turn, rivals alternating, after one round to warm up."""
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for calls in rivals.values():
        for call in calls:
            call()
    end = time.perf_counter() + SECONDS * len(rivals)
    turn = 0
    while time.perf_counter() < end or turn < 5:
        for name, calls in rivals.items():
            start = time.perf_counter()
            calls[turn % len(calls)]()
            times[name].append(time.perf_counter() - start)
        turn += 1
    return {name: float(np.quantile(found, 0.25)) for name, found in times.items()}


def headway_calls(ops: CpuOps, x: np.ndarray, weights: list[np.ndarray], dtype: str) -> Calls:
    out = np.empty((len(x), len(weights[0])), np.float32)
    packed = [ops.pack_linear(weight, None, dtype) for weight in weights]
    return [lambda weight=weight: ops.linear(x, weight, out) for weight in packed]


def torch_calls(x: np.ndarray, weights: list[np.ndarray], threads: int) -> Calls:
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
    gigaops = 2 * n * k * m / seconds / 1e9
    return f"{name:24} {n:6} {k:5} {m:4} {seconds * 1e6:10.1f} {gigabytes:7.1f} {gigaops:8.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--dtype", nargs="+", default=["bfloat16", "int8"], choices=BYTES)
    arguments = parser.parse_args()
    ops = CpuOps(arguments.isa, arguments.threads)
    rng = np.random.default_rng(0)
    print(f"{ops.name} x{ops.num_threads}")
    print(f"{'weights':24} {'N':>6} {'K':>5} {'M':>4} {'us':>10} {'GB/s':>7} {'GOP/s':>8}")
    for n, k in SHAPES:
        copies = max(1, min(24, COLD_BYTES // (n * k)))
        weights = [rng.standard_normal((n, k), dtype=np.float32) for _ in range(copies)]
        for m in ROWS:
            x = rng.standard_normal((m, k), dtype=np.float32)
            rivals = {name: headway_calls(ops, x, weights, name) for name in arguments.dtype}
            peer = torch_calls(x, weights, ops.num_threads)
            if peer:
                rivals["torch bfloat16"] = peer
            for name, seconds in typical_seconds(rivals).items():
                print(line(name, seconds, n, k, m, BYTES[name.removeprefix("torch ")]))


if __name__ == "__main__":
    main()
