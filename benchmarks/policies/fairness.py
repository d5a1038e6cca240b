"""What a flooding tenant does to another's time to first token, under each way to share.

    python -m benchmarks.policies.fairness [--worlds a,b] [--seeds 1,2,3] [--flood 2.0]
        [--shares fcfs fair] [--json FILE]

In each world a quiet tenant asks for a tenth of what the machine can serve, and then, with the same
requests at the same times, beside a tenant that asks for `--flood` times what it can serve. Figures
are the quiet tenant's, alone and as multiples of that: mean and standard deviation over seeds. The
bar: p99 at most 1.5 times the solo figure.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.policies.worlds import SEEDS, WORLDS, World, machine

from headway.simulator.simulate import simulate
from headway.simulator.workload.spec import from_spec

QUIET, NUM_QUIET = 0.1, 100
SHARES: dict[str, Mapping[str, Any]] = {
    "fcfs": {},
    "fair": {"ordering": "fair"},
    "fair, 32 slots": {"ordering": "fair", "max_tenant_seqs": 32},
    "32 slots, budget 512": {
        "ordering": "fair",
        "max_tenant_seqs": 32,
        "max_num_batched_tokens": 512,
    },
}
# One of them is this question's own world, and its traffic is the wide kind's.
NAMES = tuple(name for name in WORLDS if name not in ("flooding-tenant", "multi-turn"))


def spec_of(world: World, seed: int, flood: float) -> dict[str, Any]:
    """The quiet tenant's stream first: the same whether or not another comes."""
    capacity = world.rate / 1.2
    length_s = NUM_QUIET / (QUIET * capacity)
    kinds = world.spec.get("streams", [dict(world.spec)])
    shared = {} if "streams" not in world.spec else {"max_tokens": world.spec["max_tokens"]}
    total = sum(kind.get("rate", 1.0) for kind in kinds)
    streams = []
    for tenant, load in (("quiet", QUIET), ("flood", flood)):
        for kind in kinds if load else ():
            rate = load * capacity * kind.get("rate", 1.0) / total
            num_requests = max(1, round(rate * length_s))
            streams.append({**kind, "rate": rate, "requests": num_requests, "tenants": tenant})
    return {"streams": streams, **shared, "seed": seed}


def ttft_of_the_quiet(
    world: World, seed: int, flood: float, changes: Mapping[str, Any]
) -> tuple[float, float]:
    """p50 and p99, seconds."""
    result = simulate(
        world.config(**changes),
        from_spec(spec_of(world, seed, flood)),
        machine(),
        num_blocks=world.num_blocks,
    )
    rows = np.asarray(result.sequences["tenant"]) == "quiet"
    first, arrival = result.sequences["first_token_ns"][rows], result.sequences["arrival_ns"][rows]
    if not rows.any() or (first < 0).any():
        raise RuntimeError(f"{world.name}: of {rows.sum()} quiet requests some got no token")
    p50, p99 = np.percentile((first - arrival) / 1e9, (50, 99))
    return float(p50), float(p99)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", default=",".join(NAMES))
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--flood", type=float, default=2.0)
    parser.add_argument("--shares", nargs="*", default=list(SHARES), choices=list(SHARES))
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    seeds = [int(seed) for seed in args.seeds.split(",")]
    told: dict[str, Any] = {}
    print(f"{'world':20} {'TTFT of the quiet tenant':26}{'p50':>22}{'p99':>22}")
    for name in args.worlds.split(","):
        world = WORLDS[name]
        alone = np.array([ttft_of_the_quiet(world, seed, 0.0, {}) for seed in seeds])
        rows = {"alone, ms": alone * 1000}
        for share in args.shares:
            changes = SHARES[share]
            ran = [ttft_of_the_quiet(world, seed, args.flood, changes) for seed in seeds]
            rows[f"{share}, x"] = np.array(ran) / alone
        for label, values in rows.items():
            cells = [
                f"{mean:,.2f} ± {spread:,.2f}"
                for mean, spread in zip(values.mean(0), values.std(0), strict=True)
            ]
            print(f"{name:20} {label:26}" + "".join(f"{cell:>22}" for cell in cells), flush=True)
            told.setdefault(name, {})[label] = values.tolist()
    if args.json:
        args.json.write_text(json.dumps({"flood": args.flood, "seeds": seeds, "worlds": told}))


if __name__ == "__main__":
    main()
