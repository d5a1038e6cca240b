"""How long does a day of requests take to simulate, and how much memory?

    python benchmarks/simulate_day.py [--requests 10000 100000 1000000] [--rate 11.57]

Llama-3-8B on an H100, prompts and outputs of chat (lognormal, means 1,000 and 250), a pool of
20,000 blocks, no prefix cache (--prefix-caching turns it on). Each size in a process of its own,
so that the memory is its own; one core.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

from headway.core.config import SchedulerConfig
from headway.simulator.simulate import simulate
from headway.simulator.step_time.hardware import hardware_named
from headway.simulator.step_time.models import shape_named
from headway.simulator.step_time.roofline import roofline
from headway.simulator.workload.spec import from_spec

NUM_BLOCKS = 20_000


def run(num_requests: int, rate: float, caching: bool) -> str:
    config = SchedulerConfig(
        max_num_seqs=256,
        max_num_batched_tokens=8192,
        max_model_len=16384,
        enable_prefix_caching=caching,
    )
    workload = from_spec(
        {
            "rate": rate,
            "requests": num_requests,
            "prompt_tokens": "lognormal:1000:0.8:32-8192",
            "output_tokens": "lognormal:250:0.8:8-2048",
        }
    )
    model = roofline(shape_named("Llama-3-8B"), hardware_named("h100"))
    started = time.perf_counter()
    result = simulate(config, workload, model, num_blocks=NUM_BLOCKS)
    simulated_s = time.perf_counter() - started
    summary = result.summary()
    wall_s = time.perf_counter() - started
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return (
        f"{num_requests:9,} requests, {summary.num_steps:10,} steps, mean batch "
        f"{summary.mean_batch:5.1f}: {wall_s:7.1f} s (figures {wall_s - simulated_s:.1f} s), "
        f"{wall_s / num_requests * 1e6:6.0f} us a request, {mib:6,.0f} MiB"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--requests", type=int, nargs="+", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--rate", type=float, default=11.57)
    parser.add_argument("--prefix-caching", action="store_true")
    args = parser.parse_args()
    if len(args.requests) == 1:
        print(run(args.requests[0], args.rate, args.prefix_caching), flush=True)
        return
    for num_requests in args.requests:
        flags = ["--prefix-caching"] * args.prefix_caching
        command = [sys.executable, __file__, "--requests", str(num_requests)]
        subprocess.run([*command, "--rate", str(args.rate), *flags], check=True)


if __name__ == "__main__":
    main()
