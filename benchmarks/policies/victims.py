"""What preemptions cost under each victim rule: tokens computed again, in worlds full to the brim.

    python -m benchmarks.policies.victims [WORLD ...]

`least-lost` is two things: a choice, and the room that is left for the running at admissions. So
each is measured alone, too. A row for each world, with and without the prefix cache: means over
five seeds, with the standard deviation; `cut` is by how much fewer tokens are computed again than
under `newest`, of the sums over the seeds.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from statistics import mean, stdev

from benchmarks.policies.worlds import BLOCK_SIZE, SEEDS, WORLDS, machine

from headway.core.policies import build_policies
from headway.core.policies.victim import LeastLost, Newest, VictimRule
from headway.simulator.result import Summary
from headway.simulator.simulate import simulate
from headway.simulator.workload.spec import from_spec

RULES: dict[str, tuple[str, VictimRule]] = {  # the flag, and who chooses
    "newest": ("newest", Newest()),
    "the choice alone": ("newest", LeastLost(BLOCK_SIZE)),
    "the room alone": ("least-lost", Newest()),
    "least-lost": ("least-lost", LeastLost(BLOCK_SIZE)),
}


def run(name: str, seed: int, rule: str, *, caching: bool) -> Summary:
    world, (flag, victim) = WORLDS[name], RULES[rule]
    config = world.config(victim=flag, enable_prefix_caching=caching)
    policies = replace(build_policies(config), victim=victim)
    workload = from_spec(world.workload_spec(seed))
    return simulate(
        config, workload, machine(), num_blocks=world.num_blocks, policies=policies
    ).summary()


def spread(values: list[int]) -> str:
    return f"{mean(values):,.0f} ± {stdev(values):,.0f}"


def print_rows(name: str, *, caching: bool) -> None:
    base = 0
    for rule in RULES:
        runs = [run(name, seed, rule, caching=caching) for seed in SEEDS]
        again = [s.num_recomputed_tokens for s in runs]
        base = sum(again) if rule == "newest" else base
        print(
            f"{name:20}{'on' if caching else 'off':6}{rule:18}"
            f"{spread([s.num_preemptions for s in runs]):>14}{spread(again):>20}"
            f"{f'{1 - sum(again) / base:.0%}' if base else '-':>6}"
            f"{mean(s.output_tokens_per_second for s in runs):>10,.0f}"
            f"{mean(s.ttft_s.p50 for s in runs):>11.2f}{mean(s.ttft_s.p99 for s in runs):>8.2f}"
            f"{mean(s.e2e_s.p99 for s in runs):>9.1f}",
            flush=True,
        )


def main() -> None:
    print(
        f"{'world':20}{'cache':6}{'rule':18}{'preempted':>14}{'computed again':>20}{'cut':>6}"
        f"{'tokens/s':>10}{'TTFT p50':>11}{'p99, s':>8}{'e2e p99':>9}"
    )
    for name in sys.argv[1:] or WORLDS:
        for caching in (True, False):
            print_rows(name, caching=caching)


if __name__ == "__main__":
    main()
