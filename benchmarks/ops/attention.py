"""Speed of `paged_attention`: decodes and prefill chunks of two models' shapes.

    python benchmarks/ops/attention.py [--isa avx512_vnni] [--threads 2] [--dtypes bfloat16 int8]

The shapes are SmolLM2-135M's (9 query heads, 3 kv heads of 64) and Qwen3-0.6B's (16, 8 of 128).
Layers take turns, so that keys and values come from memory as they do in a step. Prints
microseconds a layer (lower quartile), the bytes of keys and values read per second, and the
floating-point operations that the products of what is visible would take.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass

import numpy as np

from headway.ops.cpu.backend import CpuOps
from headway.ops.interface import KVCache, TokenBatch

BLOCK = 16
SHAPES = {"smollm2": (9, 3, 64), "qwen3": (16, 8, 128)}  # heads, kv heads, head_dim
# sequences, tokens of context each, of which so many are new
WORKLOADS = ((1, 256, 1), (1, 2048, 1), (16, 256, 1), (16, 2048, 1), (64, 256, 1), (64, 2048, 1))
WORKLOADS += ((1, 128, 128), (1, 512, 512), (1, 2048, 512))
SECONDS, MAX_LAYERS, POOL_BYTES = 0.5, 30, 1 << 30


@dataclass(frozen=True)
class Workload:
    shape: str
    dtype: str
    sequences: int
    context: int
    new: int

    def batch(self) -> TokenBatch:
        blocks = self.context // BLOCK
        tables = np.arange(self.sequences * blocks, dtype=np.int32).reshape(self.sequences, blocks)
        starts = np.arange(self.sequences + 1, dtype=np.int32) * self.new
        one = np.arange(self.context - self.new, self.context, dtype=np.int32)
        nothing = np.zeros(self.sequences * self.new, np.int32)
        positions = np.tile(one, self.sequences)
        return TokenBatch(nothing, positions, nothing.astype(np.int64), starts, tables, starts[:-1])

    def cache(self, ops: CpuOps) -> KVCache:
        """As many layers as fit, filled with small numbers (scales included)."""
        _, kv_heads, head_dim = SHAPES[self.shape]
        tokens = self.sequences * self.context
        layers = max(1, min(MAX_LAYERS, POOL_BYTES // (tokens * kv_heads * head_dim * 4)))
        cache = ops.new_kv_cache(layers, tokens // BLOCK, BLOCK, kv_heads, head_dim, self.dtype)
        for array in (cache.keys, cache.values):
            array.view(np.uint8)[:] = 0x3C
        return cache


def typical_seconds(ops: CpuOps, cache: KVCache, work: Workload) -> float:
    heads, kv_heads, head_dim = SHAPES[work.shape]
    batch = work.batch()
    rng = np.random.default_rng(0)
    rows = len(batch.positions)
    qkv = rng.standard_normal((rows, (heads + 2 * kv_heads) * head_dim), dtype=np.float32)
    out = np.empty((rows, heads * head_dim), np.float32)
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times) < 5:
        layer = len(times) % cache.num_layers
        start = time.perf_counter()
        ops.paged_attention(
            qkv, cache, layer, batch, num_heads=heads, scale=0.125, window=0, out=out
        )
        times.append(time.perf_counter() - start)
    return float(np.quantile(times, 0.25))


def report(ops: CpuOps, work: Workload) -> None:
    heads, _, head_dim = SHAPES[work.shape]
    cache = work.cache(ops)
    seconds = typical_seconds(ops, cache, work)
    gigabytes = (cache.keys.nbytes + cache.values.nbytes) / cache.num_layers / seconds / 1e9
    seen = float((work.batch().positions + 1).sum())
    print(
        f"{work.shape:8} {work.dtype:9} {work.sequences:3} x {work.new:3} tokens, context "
        f"{work.context:4}: {seconds * 1e6:9.1f} us {gigabytes:6.1f} GB/s "
        f"{4 * seen * head_dim * heads / seconds / 1e9:6.1f} GFLOP/s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("--dtypes", nargs="+", default=["bfloat16", "int8"])
    arguments = parser.parse_args()
    ops = CpuOps(arguments.isa, arguments.threads)
    print(f"{ops.name} x{ops.num_threads}")
    for shape in arguments.shapes:
        for dtype in arguments.dtypes:
            for workload in WORKLOADS:
                report(ops, Workload(shape, dtype, *workload))


if __name__ == "__main__":
    main()
