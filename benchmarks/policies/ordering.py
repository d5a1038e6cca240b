"""What `sjf` does to waiting: times to first token and to the end, and the longest wait.

    python -m benchmarks.policies.ordering [WORLD ...]

Every world at 1.3 times what it serves, five seeds; the mean over seeds and, behind it, half the
distance from the lowest to the highest.
"""

from __future__ import annotations

import sys
from statistics import mean

from benchmarks.policies.worlds import SEEDS, WORLDS, World

from headway.simulator.result import Summary

LOAD = 1.3
POLICIES = {
    "fcfs": {"ordering": "fcfs"},
    "sjf": {"ordering": "sjf"},
    "sjf, no ageing": {"ordering": "sjf", "ageing_tokens_per_s": 0},
    "sjf, ageing 500": {"ordering": "sjf", "ageing_tokens_per_s": 500},
}
# Requests a second (of sessions, in multi-turn) that a world serves while many wait: measured with
# everybody there from the start.
SERVED_PER_S = {
    "wide-chat": 26.0,
    "fixed-length": 23.5,
    "long-shared-prompts": 18.6,
    "multi-turn": 5.0,
    "long-reasoning": 1.6,
    "bursty": 24.3,
    "one-huge-prompt": 33.8,
    "flooding-tenant": 23.1,
    "oversubscribed": 6.8,
}


def load_of(world: World, share: float) -> float:
    """The world's own measure of a rate that is this share of what it serves."""
    return 1.2 * share * SERVED_PER_S[world.name] / world.rate


def spread(values: list[float]) -> str:
    return f"{mean(values):7.2f} ±{(max(values) - min(values)) / 2:5.2f}"


def main() -> None:
    print("seconds, mean over seeds ± half the range")
    print(
        f"{'world':20} {'ordering':16} {'TTFT mean':>14} {'TTFT p50':>14} {'e2e mean':>14} "
        f"{'e2e p50':>14} {'longest wait':>14} {'tokens/s':>9}"
    )
    for name in sys.argv[1:] or WORLDS:
        world = WORLDS[name]
        for label, knobs in POLICIES.items():
            runs = [world.run(seed, load=load_of(world, LOAD), **knobs).summary() for seed in SEEDS]
            print(f"{name:20} {label:16} {_row(runs)}", flush=True)


def _row(runs: list[Summary]) -> str:
    columns = [
        [run.ttft_s.mean for run in runs],
        [run.ttft_s.p50 for run in runs],
        [run.e2e_s.mean for run in runs],
        [run.e2e_s.p50 for run in runs],
        [run.queue_s.max for run in runs],
    ]
    rate = mean(run.output_tokens_per_second for run in runs)
    return " ".join(spread(column) for column in columns) + f" {rate:9,.0f}"


if __name__ == "__main__":
    main()
