"""How fast is `linear`, beside PyTorch's bfloat16 and beside what the machine allows?

    python benchmarks/ops/linear.py [--quick] [--shapes smollm2] [--isa avx512] [--threads 2]

On the shapes of SmolLM2-135M and Qwen3-0.6B, for 1 to 512 rows: our bfloat16 and int8, PyTorch's
linear in bfloat16, plain and with the weight packed beforehand by oneDNN (where PyTorch is
installed). Each call on weights that were not used for COLD_BYTES; medians of wall time, so leave
the machine alone. Shares are of the read bandwidth (weights alone, which bounds a few rows) and of
the best peak for the operands (which bounds many rows), both measured first, in this run.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from roofline import Ceilings, best, measure

from headway.ops.cpu.backend import CpuOps
from headway.ops.interface import PackedLinear
from headway.ops.memory import aligned_zeros

SHAPES = {  # N, K: qkv, attention output, gate and up, down, logits
    "smollm2": ((960, 576), (576, 576), (3072, 576), (576, 1536), (49152, 576)),
    "qwen3": ((4096, 1024), (1024, 2048), (6144, 1024), (1024, 3072), (151936, 1024)),
}
ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
QUICK_ROWS = (1, 8, 16, 64, 256)
COLD_BYTES = 160 * 2**20
TURNS, BURST_SECONDS, PAUSE = 7, 0.01, 0.02
PEAKS = {"bfloat16": ("float32_fma", "bfloat16_dot"), "int8": ("int8_dot",)}
BYTES = {"bfloat16": 2, "int8": 1}

Calls = list[Callable[[], object]]


def typical_seconds(rivals: dict[str, Calls]) -> dict[str, float]:
    """Medians. Rivals alternate in short bursts, each after a pause and a call that is not counted:
    threads of the one before may spin for some milliseconds, waiting for more work."""
    times: dict[str, list[float]] = {name: [] for name in rivals}
    for turn in range(TURNS):
        for name, calls in rivals.items():
            time.sleep(PAUSE)
            times[name] += burst(calls, len(times[name]) + turn)
    return {name: float(np.median(found)) for name, found in times.items()}


def burst(calls: Calls, first: int) -> list[float]:
    seconds: list[float] = []
    calls[first % len(calls)]()
    while not seconds or sum(seconds) < BURST_SECONDS:
        call = calls[(first + 1 + len(seconds)) % len(calls)]
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return seconds


def num_copies(num_bytes: int) -> int:
    return -(-COLD_BYTES // num_bytes)


def packed_copies(ops: CpuOps, weight: np.ndarray, dtype: str) -> list[PackedLinear]:
    first = ops.pack_linear(weight, None, dtype)
    copies = [first]
    while len(copies) < num_copies(weight.size * BYTES[dtype]):
        data = aligned_zeros(first.data.shape, first.data.dtype.type)
        data[...] = first.data
        copies.append(replace(first, data=data))
    return copies


def headway_calls(ops: CpuOps, x: np.ndarray, copies: list[PackedLinear]) -> Calls:
    out = aligned_zeros((len(x), copies[0].out_features), np.float32)
    return [lambda weight=weight: ops.linear(x, weight, out) for weight in copies]


class TorchLinear:
    """PyTorch's calls on copies of one weight, or none where it is not installed."""

    def __init__(self, weight: np.ndarray, threads: int) -> None:
        try:
            import torch
        except ImportError:
            self._torch = None
            return
        self._torch = torch
        torch.set_num_threads(threads)
        tensor = torch.from_numpy(weight).bfloat16()
        self._weights = [tensor.clone() for _ in range(num_copies(weight.size * 2))]

    def calls(self, x: np.ndarray) -> dict[str, Calls]:
        if self._torch is None:
            return {}
        torch = self._torch
        rows, weights = torch.from_numpy(x).bfloat16(), self._weights
        plain: Calls = [
            lambda weight=weight: torch.nn.functional.linear(rows, weight) for weight in weights
        ]
        if not torch.backends.mkldnn.is_available():
            return {"torch": plain}
        onednn = torch.ops.mkldnn
        ordered = [onednn._reorder_linear_weight(weight, len(x)) for weight in weights]
        packed: Calls = [
            lambda weight=weight: onednn._linear_pointwise(rows, weight, None, "none", [], "")
            for weight in ordered
        ]
        return {"torch": plain, "torch packed": packed}


def timings(
    ops: CpuOps, n: int, k: int, rows: tuple[int, ...]
) -> Iterator[tuple[int, dict[str, float]]]:
    """For each number of rows: rival → seconds."""
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((n, k), dtype=np.float32)
    copies = {dtype: packed_copies(ops, weight, dtype) for dtype in BYTES}
    peer = TorchLinear(weight, ops.num_threads)
    for m in rows:
        x = rng.standard_normal((m, k), dtype=np.float32)
        rivals = {dtype: headway_calls(ops, x, copies[dtype]) for dtype in BYTES}
        yield m, typical_seconds(rivals | peer.calls(x))


def line(n: int, k: int, m: int, found: dict[str, float], ceilings: Ceilings, threads: int) -> str:
    bandwidth = best(ceilings, ("read_small_pages", "read_huge_pages"), threads)
    text = f"{n:6} {k:5} {m:4}"
    for dtype, peaks in PEAKS.items():
        seconds = found[dtype]
        read = n * k * BYTES[dtype] / seconds / 1e9 / bandwidth
        done = 2 * n * k * m / seconds / 1e9 / best(ceilings, peaks, threads)
        text += f" |{seconds * 1e6:10.1f} {read:5.0%} {done:5.0%}"
    text += f" |{found['bfloat16'] / found['int8']:5.2f}"
    peers = [found[name] for name in ("torch", "torch packed") if name in found]
    if peers:
        text += " |" + "".join(f"{seconds * 1e6:10.1f}" for seconds in peers)
        text += f" {min(peers) / found['bfloat16']:5.2f}"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("--rows", nargs="+", type=int)
    parser.add_argument("--quick", action="store_true", help=f"{QUICK_ROWS} rows only")
    arguments = parser.parse_args()
    ops = CpuOps(arguments.isa, arguments.threads)
    threads = min(2, ops.num_threads)
    ceilings = measure()
    print(f"{ops.name} x{ops.num_threads}; us, share of read bandwidth, share of peak")
    for name in ("read_huge_pages", *PEAKS["bfloat16"], *PEAKS["int8"]):
        print(f"  {name} x{threads}: {ceilings.get((name, threads), float('nan')):.1f}")
    print(
        f"{'N':>6} {'K':>5} {'M':>4} |{'bfloat16':>10} {'read':>5} {'peak':>5}"
        f" |{'int8':>10} {'read':>5} {'peak':>5} | gain |     torch    packed ratio"
    )
    rows = tuple(arguments.rows or (QUICK_ROWS if arguments.quick else ROWS))
    for shapes in arguments.shapes:
        for n, k in SHAPES[shapes]:
            for m, found in timings(ops, n, k, rows):
                print(line(n, k, m, found, ceilings, threads), flush=True)


if __name__ == "__main__":
    main()
