"""What preemptions cost under each victim rule: tokens computed again, in worlds full to the brim.

    python -m benchmarks.policies.victims

A row for each world, with and without the prefix cache: preemptions and tokens computed again,
means over five seeds with their spread (standard deviation); `cut` is by how much `least-lost` has
fewer than `newest`, of the sums over the seeds.
"""

from __future__ import annotations

from statistics import mean, stdev

from benchmarks.policies.worlds import SEEDS, WORLDS

from headway.simulator.result import Summary

RULES = ("newest", "least-lost")


def spread(values: list[float]) -> str:
    return f"{mean(values):,.0f} ± {stdev(values):,.0f}"


def print_row(name: str, *, caching: bool) -> None:
    runs: dict[str, list[Summary]] = {
        rule: [
            WORLDS[name].run(seed, victim=rule, enable_prefix_caching=caching).summary()
            for seed in SEEDS
        ]
        for rule in RULES
    }
    cells = [f"{name:20}{'on' if caching else 'off':5}"]
    for rule in RULES:
        cells.append(f"{spread([s.num_preemptions for s in runs[rule]]):>15}")
        cells.append(f"{spread([s.num_recomputed_tokens for s in runs[rule]]):>20}")
        cells.append(f"{mean(s.output_tokens_per_second for s in runs[rule]):8,.0f}")
    newest, least = (sum(s.num_recomputed_tokens for s in runs[rule]) for rule in RULES)
    cut = f"{1 - least / newest:.0%}" if newest else "-"
    print("".join(cells) + f"{cut:>6}", flush=True)


def main() -> None:
    head = "".join(f"{'preempted':>15}{'computed again':>20}{'tok/s':>8}" for _ in RULES)
    print(f"{'':25}" + "".join(f"{rule:>43}" for rule in RULES))
    print(f"{'world':20}cache{head}{'cut':>6}")
    for name in WORLDS:
        for caching in (True, False):
            print_row(name, caching=caching)


if __name__ == "__main__":
    main()
