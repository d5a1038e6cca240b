"""How much could any choice of victims save, with a prefix cache? Rules that know what none can.

    python -m benchmarks.policies.victims_bound [--seeds 1,2] [--requests 400] [WORLD ...]

Without the room that `least-lost` leaves at admissions. `longest left` and `shortest left` know how
much each will still say. `look-ahead` tries up to eight victims at each choice: for each of them a
copy of the process goes on to the end of the run, choosing as `least-lost` does, and the victim is
taken with which the fewest tokens were computed again in all. Worlds in which clients declare four
times what they say, for that is how the rules know it.
"""

from __future__ import annotations

import argparse
import os
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from statistics import mean

from benchmarks.policies.worlds import BLOCK_SIZE, WORLDS, machine

from headway.core.blocks import BlockPool
from headway.core.policies import build_policies
from headway.core.policies.victim import LeastLost, Newest, VictimRule, able_to_pay
from headway.core.sequence import Sequence
from headway.simulator.result import Summary
from headway.simulator.simulate import simulate
from headway.simulator.workload.spec import from_spec

NUM_TRIED = 8


class ByKey:
    """Of those who free a block, but not the oldest, the one with the largest key."""

    def __init__(self, key: Callable[[Sequence], float]) -> None:
        self._key = key

    def choose(self, running: Mapping[int, Sequence], pool: BlockPool) -> Sequence:
        able = able_to_pay(running, pool)
        oldest = min(able, key=lambda s: (s.request.arrival_ns, s.sequence_id))
        return max([s for s in able if s is not oldest] or able, key=self._key)


def num_left(sequence: Sequence) -> int:
    """What it will still say."""
    most = sequence.request.max_output_tokens
    assert most is not None
    return most // 4 - sequence.num_output_tokens


def anybody() -> ByKey:
    rng = random.Random(1)
    return ByKey(lambda _: rng.random())


class LookAhead:
    """Forks for each victim that it tries; `outcome` is where a copy tells how it went."""

    def __init__(self) -> None:
        self._usual = LeastLost(BLOCK_SIZE)
        self.outcome: int | None = None  # a pipe, in a copy

    def choose(self, running: Mapping[int, Sequence], pool: BlockPool) -> Sequence:
        if self.outcome is not None:
            return self._usual.choose(running, pool)
        rules = [self._usual, *(make() for name, make in RULES.items() if name != "look-ahead")]
        tried = {rule.choose(running, pool).sequence_id for rule in rules}
        able = [s.sequence_id for s in able_to_pay(running, pool)]
        tried.update(random.Random(len(able)).sample(able, min(len(able), NUM_TRIED)))
        outcomes: dict[int, int] = {}
        for victim in sorted(tried, reverse=True)[:NUM_TRIED]:
            source, self.outcome = os.pipe()
            if not os.fork():
                return running[victim]
            os.close(self.outcome)
            self.outcome = None
            outcomes[victim] = int(os.read(source, 64))
            os.close(source)
            os.wait()
        return running[min(outcomes, key=outcomes.__getitem__)]


RULES: dict[str, Callable[[], VictimRule]] = {
    "newest": Newest,
    "least-lost": lambda: LeastLost(BLOCK_SIZE),
    "anybody": anybody,
    "longest left": lambda: ByKey(num_left),
    "shortest left": lambda: ByKey(lambda s: -num_left(s)),
    "look-ahead": LookAhead,
}


def run(name: str, rule: VictimRule, seed: int, num_requests: int) -> Summary:
    world = WORLDS[name]
    config = world.config()
    summary = simulate(
        config,
        from_spec({**world.workload_spec(seed), "requests": num_requests}),
        machine(),
        num_blocks=world.num_blocks,
        policies=replace(build_policies(config), victim=rule),
    ).summary()
    if isinstance(rule, LookAhead) and rule.outcome is not None:
        os.write(rule.outcome, str(summary.num_recomputed_tokens).encode())
        os._exit(0)
    return summary


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("worlds", nargs="*", default=["bursty", "wide-chat", "oversubscribed"])
    parser.add_argument("--seeds", default="1")
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--rules", default=",".join(RULES))
    asked = parser.parse_args()
    seeds = [int(seed) for seed in asked.seeds.split(",")]
    print(f"{'world':20}{'rule':15}{'preempted':>10}{'computed again':>16}{'of newest':>11}")
    for name in asked.worlds:
        base = 0.0
        for rule in asked.rules.split(","):
            runs = [run(name, RULES[rule](), seed, asked.requests) for seed in seeds]
            again = mean(s.num_recomputed_tokens for s in runs)
            base = base or again
            preempted = mean(s.num_preemptions for s in runs)
            share = again / base if base else 1.0
            print(f"{name:20}{rule:15}{preempted:10,.0f}{again:16,.0f}{share:11.2f}", flush=True)


if __name__ == "__main__":
    main()
