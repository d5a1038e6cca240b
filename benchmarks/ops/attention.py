"""Speed of `paged_attention`: decodes of one model's shape over contexts of a few lengths.

    python benchmarks/ops/attention.py [--isa avx512_bf16] [--threads 2]

The shape is SmolLM2-135M's: 9 query heads, 3 kv heads of 64, bfloat16. Prints microseconds (the
lower quartile), and the bytes of keys and values read per second.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from headway.ops.cpu.backend import CpuOps
from headway.ops.interface import KVCache, TokenBatch

HEADS, KV_HEADS, HEAD_DIM, BLOCK = 9, 3, 64, 16
WORKLOADS = ((1, 128), (1, 1024), (16, 512), (64, 512))  # sequences, tokens of context each
SECONDS = 0.4


def decode_batch(sequences: int, context: int) -> TokenBatch:
    blocks = context // BLOCK
    nothing = np.zeros(sequences, np.int32)
    tables = np.arange(sequences * blocks, dtype=np.int32).reshape(sequences, blocks)
    starts = np.arange(sequences + 1, dtype=np.int32)
    positions = np.full(sequences, context - 1, np.int32)
    return TokenBatch(nothing, positions, nothing.astype(np.int64), starts, tables, starts[:-1])


def typical_seconds(ops: CpuOps, cache: KVCache, batch: TokenBatch) -> float:
    rng = np.random.default_rng(0)
    rows = len(batch.positions)
    qkv = rng.standard_normal((rows, (HEADS + 2 * KV_HEADS) * HEAD_DIM), dtype=np.float32)
    out = np.empty((rows, HEADS * HEAD_DIM), np.float32)
    times: list[float] = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(times) < 5:
        start = time.perf_counter()
        ops.paged_attention(qkv, cache, 0, batch, num_heads=HEADS, scale=0.125, window=0, out=out)
        times.append(time.perf_counter() - start)
    return float(np.quantile(times, 0.25))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--isa")
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    ops = CpuOps(arguments.isa, arguments.threads)
    print(f"{ops.name} x{ops.num_threads}")
    for sequences, context in WORKLOADS:
        batch = decode_batch(sequences, context)
        cache = ops.new_kv_cache(
            1, sequences * context // BLOCK, BLOCK, KV_HEADS, HEAD_DIM, "bfloat16"
        )
        seconds = typical_seconds(ops, cache, batch)
        gigabytes = sequences * context * KV_HEADS * HEAD_DIM * 2 * 2 / seconds / 1e9
        print(
            f"{sequences:3} decodes over {context:5} tokens: "
            f"{seconds * 1e6:8.1f} us {gigabytes:6.1f} GB/s"
        )


if __name__ == "__main__":
    main()
