"""How many deadlines `edf` meets, beside `fcfs` and `sjf`, from half to twice what a world serves.

    python -m benchmarks.policies.deadlines [--worlds A,B] [--laws tight,loose] [--loads 0.5,1,2]
        [--seeds 1,2,3,4,5] [--requests 600]

A deadline is drawn for each request, from its arrival, whatever it will say: 1 to 4 (tight) or 3 to
15 (loose) times the mean time of a request in a calm world. Met is what ends by itself: whoever is
late is aborted under all three. Percent, the mean over seeds ± half the range.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

from benchmarks.policies.ordering import load_of
from benchmarks.policies.worlds import WORLDS, World, machine

from headway.simulator.simulate import simulate
from headway.simulator.workload.base import ClientRequest, Traffic, Workload
from headway.simulator.workload.spec import from_spec

LAWS = {"tight": (1.0, 4.0), "loose": (3.0, 15.0)}
ORDERINGS = ("fcfs", "sjf", "edf")
# Seconds that a request takes on the mean at a quarter of what the world serves.
CALM_S = {
    "wide-chat": 1.9,
    "fixed-length": 1.8,
    "long-shared-prompts": 1.9,
    "multi-turn": 1.4,
    "long-reasoning": 18.0,
    "bursty": 2.0,
    "one-huge-prompt": 1.2,
    "flooding-tenant": 1.7,
    "oversubscribed": 2.5,
}


@dataclass(frozen=True, slots=True)
class Dated:
    """A workload whose requests have deadlines."""

    workload: Workload
    calm_s: float
    low: float
    high: float
    seed: int

    def traffic(self) -> DatedTraffic:
        return DatedTraffic(self, self.workload.traffic())

    def dated(self, request: ClientRequest) -> ClientRequest:
        share = random.Random(f"{self.seed} {request.request_id}").random()
        span_s = self.calm_s * (self.low + share * (self.high - self.low))
        return replace(request, deadline_ns=request.arrival_ns + round(span_s * 1e9))


@dataclass(frozen=True, slots=True)
class DatedTraffic:
    of: Dated
    traffic: Traffic

    def arrivals(self) -> Iterator[ClientRequest]:
        return map(self.of.dated, self.traffic.arrivals())

    def follow_up(self, ended: ClientRequest, now_ns: int) -> Iterable[ClientRequest]:
        return [self.of.dated(request) for request in self.traffic.follow_up(ended, now_ns)]


def met_share(world: World, ordering: str, law: str, load: float, seed: int, most: int) -> float:
    """Percent of all requests."""
    spec = _cut(world.workload_spec(seed, load_of(world, load)), most)
    workload = Dated(from_spec(spec), CALM_S[world.name], *LAWS[law], seed)
    config = world.config(ordering=ordering)
    figures = simulate(config, workload, machine(), num_blocks=world.num_blocks).summary()
    return 100 * figures.num_finished / figures.num_requests


def _cut(spec: dict[str, Any], most: int) -> dict[str, Any]:
    """The same traffic with fewer requests."""
    if "requests" in spec:
        return {**spec, "requests": min(most, spec["requests"])}
    total = sum(part["requests"] for part in spec["streams"])
    parts = [
        {**part, "requests": max(2, part["requests"] * min(most, total) // total)}
        for part in spec["streams"]
    ]
    return {**spec, "streams": parts}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--worlds", default=",".join(WORLDS))
    parser.add_argument("--laws", default="tight,loose")
    parser.add_argument("--loads", default="0.5,0.75,1,1.25,1.5,2")
    parser.add_argument("--seeds", default="1,2,3,4,5")
    parser.add_argument("--requests", type=int, default=600)
    asked = parser.parse_args()
    seeds = [int(seed) for seed in asked.seeds.split(",")]
    print(f"{'world':20} {'law':6} {'load':>5} " + " ".join(f"{o:>14}" for o in ORDERINGS))
    for name in asked.worlds.split(","):
        for law in asked.laws.split(","):
            for load in map(float, asked.loads.split(",")):
                cells = []
                for ordering in ORDERINGS:
                    met = [
                        met_share(WORLDS[name], ordering, law, load, seed, asked.requests)
                        for seed in seeds
                    ]
                    cells.append(f"{mean(met):7.2f} ±{(max(met) - min(met)) / 2:5.2f}")
                print(f"{name:20} {law:6} {load:5} " + " ".join(cells), flush=True)


if __name__ == "__main__":
    main()
