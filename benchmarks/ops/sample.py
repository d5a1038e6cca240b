"""Speed of `sample` on one instruction set, beside the time it takes to read the logits.

    python benchmarks/ops/sample.py [--isa NAME] [--threads 2] [--rows 64] [--vocab 49152 151936]

Milliseconds, the lower quartile of the times, for rows that follow a peaked distribution (as a
model's own logits do) and a flat one (as those of random weights). "read" is the largest value of
each row: every logit once. The logits are swept out of the caches before each call.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from headway.ops.cpu.backend import CpuOps

SETTINGS = {  # temperature, top_k, top_p, min_p
    "greedy": (0.0, 0, 1.0, 0.0),
    "temperature": (0.8, 0, 1.0, 0.0),
    "top_p 0.9": (0.8, 0, 0.9, 0.0),
    "top_k 50": (0.8, 50, 1.0, 0.0),
    "all": (0.8, 50, 0.9, 0.05),
}
SWEEP_MB, CALLS = 64, 15


def peaked(rng: np.random.Generator, rows: int, vocab: int) -> np.ndarray:
    """Likelihood falls as a power of the rank, ids in no order: Zipf's law."""
    ranks = np.argsort(rng.random((rows, vocab)), axis=1)
    noise = rng.standard_normal((rows, vocab))
    return (-1.6 * np.log1p(ranks) + 0.5 * noise).astype(np.float32)


def flat(rng: np.random.Generator, rows: int, vocab: int) -> np.ndarray:
    return rng.standard_normal((rows, vocab), np.float32)


def milliseconds(
    ops: CpuOps, logits: np.ndarray, setting: tuple[float, int, float, float]
) -> float:
    rows = len(logits)
    temperature, top_k, top_p, min_p = setting
    arrays = (
        np.full(rows, temperature, np.float32),
        np.full(rows, top_k, np.int32),
        np.full(rows, top_p, np.float32),
        np.full(rows, min_p, np.float32),
        np.arange(rows, dtype=np.uint64),
    )
    out = np.empty(rows, np.int32)
    sweep = np.ones(SWEEP_MB << 17)
    times = []
    for call in range(CALLS):
        sweep.sum()
        positions = np.full(rows, call, np.int64)
        started = time.perf_counter()
        ops.sample(logits, *arrays, positions, out)
        times.append(time.perf_counter() - started)
    return float(np.quantile(times, 0.25)) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--vocab", type=int, nargs="*", default=(49152, 151936))
    args = parser.parse_args()
    ops = CpuOps(args.isa, args.threads)
    print(f"{ops.name}, {ops.num_threads} threads, {args.rows} rows; milliseconds")
    for vocab in args.vocab:
        for shape in (peaked, flat):
            logits = shape(np.random.default_rng(0), args.rows, vocab)
            found = {name: milliseconds(ops, logits, s) for name, s in SETTINGS.items()}
            shown = "  ".join(f"{name} {ms:.2f}" for name, ms in found.items())
            print(f"{vocab} {shape.__name__:8} {shown}", flush=True)


if __name__ == "__main__":
    main()
