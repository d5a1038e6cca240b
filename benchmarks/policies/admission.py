"""Does admission by forecast need no tuning? Against every cap of on-demand, and against reserve.

    python -m benchmarks.policies.admission run OUT [--worlds A,B] [--seeds 1,2] [--parts caps,...]
        [--multiples own,1,8] [--risk 0.18]
    python -m benchmarks.policies.admission table FILE

`run` appends a line of JSON for each run. Parts: `caps` (on-demand under a sweep of
--max-num-seqs), `predict` and `reserve` (each at declared multiples of 1 to 8 of what a request
says), `shift` (the lengths change in mid-run; beside runs in which they always were the later
ones), `cold` (the first requests of a server whose clients
declare nothing). Worlds are those of worlds.py, and `lesson-2` to
`lesson-64`: 256 requests that wait at once for a pool of so many GiB, drawn from the lesson's own
lengths.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.policies.worlds import SEEDS, WORLDS, World, blocks_of, machine

from headway.core.config import KV_RISK
from headway.simulator.result import Result
from headway.simulator.simulate import simulate
from headway.simulator.workload.base import ClientRequest, Segment
from headway.simulator.workload.spec import from_spec

POOLS_GIB = (2, 4, 8, 16, 32, 64)
MULTIPLES = (1, 2, 4, 8)
CAPS = (0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)  # shares of the largest batch
LENGTHS = Path(__file__).parents[2] / "tests" / "lessons" / "workload001.json"
PARTS = ("caps", "predict", "reserve", "shift", "cold")
NUM_COLD = 80
NUM_SETTLING = 200


@dataclass(frozen=True, slots=True)
class Waiting:
    """Requests that are all there at the start."""

    requests: Sequence[ClientRequest]

    def traffic(self) -> Waiting:
        return self

    def arrivals(self) -> Iterator[ClientRequest]:
        return iter(self.requests)

    def follow_up(self, ended: ClientRequest, now_ns: int) -> Sequence[ClientRequest]:
        return ()


def lesson(seed: int, multiple: int) -> Waiting:
    """The lesson's prompts and outputs, as many of each as there, drawn with replacement."""
    lengths = json.loads(LENGTHS.read_text())
    rng = random.Random(seed)
    prompts = rng.choices(lengths["prompt"], k=len(lengths["prompt"]))
    outputs = rng.choices(lengths["output"], k=len(prompts))
    return Waiting(
        [
            ClientRequest(
                request_id=str(number),
                arrival_ns=0,
                prompt=(Segment(2 * number, prompt),),
                output=Segment(2 * number + 1, output),
                max_tokens=multiple * output,
            )
            for number, (prompt, output) in enumerate(zip(prompts, outputs, strict=True))
        ]
    )


def run(name: str, seed: int, multiple: int | None = None, **config: Any) -> Result:
    """`multiple`: of what requests declare over what they say; None: as the world has it."""
    if name.startswith("lesson-"):
        drained = World(
            name=name, spec={}, rate=0, num_blocks=0, max_num_batched_tokens=8192
        ).config(enable_prefix_caching=False, reserve_full_isl=False, **config)
        blocks = blocks_of(float(name.removeprefix("lesson-")))
        return simulate(drained, lesson(seed, multiple or 4), machine(), num_blocks=blocks)
    world = WORLDS[name]
    spec = world.workload_spec(seed)
    if multiple is not None:
        spec["max_tokens"] = f"{multiple}x"
    return simulate(world.config(**config), from_spec(spec), machine(), num_blocks=world.num_blocks)


def shift(name: str, seed: int, *, is_always: bool = False, **config: Any) -> Result:
    """The world, whose outputs get three times as long in the middle of it, or always are."""
    world = WORLDS[name]
    spec = world.workload_spec(seed)
    requests = list(from_spec(spec).traffic().arrivals())
    middle = len(requests) // 2
    changed = [
        request
        if number < middle and not is_always
        else ClientRequest(
            request_id=request.request_id,
            arrival_ns=request.arrival_ns,
            prompt=request.prompt,
            output=Segment(request.output.name, 3 * request.output.num_tokens),
            max_tokens=12 * request.output.num_tokens,
        )
        for number, request in enumerate(requests)
    ]
    return simulate(
        world.config(**config), Waiting(changed), machine(), num_blocks=world.num_blocks
    )


def figures(result: Result) -> dict[str, Any]:
    found = result.summary()
    return {
        "tokens_per_second": round(found.output_tokens_per_second, 2),
        "requests": found.num_requests,
        "preempted": found.num_preempted_requests,
        "peak": found.peak_batch,
        "batch": round(found.mean_batch, 2),
        "ttft_p50_s": round(found.ttft_s.p50, 3),
        "ttft_p99_s": round(found.ttft_s.p99, 3),
    }


# ---- Runs ----


def rows(
    part: str,
    name: str,
    seed: int,
    multiples: Sequence[int | None] = (None, *MULTIPLES),
    risk: float = KV_RISK,
) -> Iterator[dict[str, Any]]:
    key = {"part": part, "world": name, "seed": seed}
    match part:
        case "caps":
            free = figures(run(name, seed, max_num_seqs=256, kv_policy="on-demand"))
            yield {**key, "cap": 256, **free}
            for cap in sorted({max(1, round(free["peak"] * share)) for share in CAPS}):
                result = run(name, seed, max_num_seqs=cap, kv_policy="on-demand")
                yield {**key, "cap": cap, **figures(result)}
        case "predict" | "reserve":
            risks = {"kv_risk": risk} if part == "predict" else {}
            for multiple in multiples:
                result = run(name, seed, multiple, max_num_seqs=256, kv_policy=part, **risks)
                yield {**key, **risks, "multiple": multiple, **figures(result)}
        case "shift":
            yield from shifted(key, name, seed)
        case _:
            yield from cold(key, name, seed)


def cold(key: dict[str, Any], name: str, seed: int) -> Iterator[dict[str, Any]]:
    """400 requests without `max_tokens`, where one alone may outgrow the pool."""
    world = WORLDS[name]
    spec = {k: v for k, v in world.workload_spec(seed).items() if k != "max_tokens"}
    for policy in ("on-demand", "predict"):
        result = simulate(
            world.config(max_num_seqs=256, kv_policy=policy),
            from_spec({**spec, "requests": 400}),
            machine(),
            num_blocks=world.num_blocks,
        )
        ended_ns = sorted(result.sequences["ended_ns"])[NUM_COLD - 1]
        span_s = (ended_ns - min(result.sequences["arrival_ns"])) / 1e9
        first = round(NUM_COLD / span_s, 3)
        yield {**key, "policy": policy, **figures(result), "first_requests_per_second": first}


def shifted(key: dict[str, Any], name: str, seed: int) -> Iterator[dict[str, Any]]:
    """Preempted: of those of the new kind that started before 200 of it had ended, and after."""
    for policy, is_always in (("on-demand", False), ("predict", False), ("predict", True)):
        result = shift(name, seed, is_always=is_always, max_num_seqs=256, kv_policy=policy)
        rows = result.sequences
        is_preempted, is_new = rows["num_preemptions"] > 0, rows["arrival_ns"] >= _middle_ns(rows)
        settled_ns = np.sort(rows["ended_ns"][is_new])[NUM_SETTLING - 1]
        is_late = rows["admitted_ns"] >= settled_ns
        yield {
            **key,
            "policy": policy,
            "is_always": is_always,
            **figures(result),
            "settling": int((is_new & ~is_late).sum()),
            "preempted_settling": int(is_preempted[is_new & ~is_late].sum()),
            "late": int(is_late.sum()),
            "preempted_late": int(is_preempted[is_late].sum()),
        }


def _middle_ns(rows: dict[str, Any]) -> int:
    arrivals = np.sort(rows["arrival_ns"])
    return int(arrivals[len(arrivals) // 2])


# ---- The table ----


def table(lines: Sequence[dict[str, Any]]) -> Iterator[str]:
    yield (
        f"{'world':20}{'best cap':>9}{'tokens/s':>10}{'no cap':>8}"
        f"{'predict':>9}{'least':>7}{'preempted':>11}   over reserve at 1x, 2x, 4x, 8x"
    )
    names = list(dict.fromkeys(line["world"] for line in lines))
    for name in names:
        found = [line for line in lines if line["world"] == name]
        ratios, free, preempted, caps, best_rates = [], [], [], [], []
        over: dict[int, list[float]] = {multiple: [] for multiple in MULTIPLES}
        for seed in sorted({line["seed"] for line in found}):
            of_seed = [line for line in found if line["seed"] == seed]
            swept = [line for line in of_seed if line["part"] == "caps"]
            ours = {line["multiple"]: line for line in of_seed if line["part"] == "predict"}
            theirs = {line["multiple"]: line for line in of_seed if line["part"] == "reserve"}
            if swept and None in ours:
                best = max(swept, key=lambda line: line["tokens_per_second"])
                caps.append(best["cap"])
                best_rates.append(best["tokens_per_second"])
                free.append(swept[0]["tokens_per_second"] / best["tokens_per_second"])
                ratios.append(ours[None]["tokens_per_second"] / best["tokens_per_second"])
                preempted.append(ours[None]["preempted"] / ours[None]["requests"])
            for multiple in MULTIPLES:
                if multiple in ours and multiple in theirs:
                    rates = [side[multiple]["tokens_per_second"] for side in (ours, theirs)]
                    over[multiple].append(rates[0] / rates[1])
        if not ratios:
            continue
        reserve = "  ".join(f"{mean(over[m])}" for m in MULTIPLES if over[m])
        yield (
            f"{name:20}{f'{min(caps)}-{max(caps)}':>9}{statistics.fmean(best_rates):>10,.0f}"
            f"{statistics.fmean(free):>8.3f}{statistics.fmean(ratios):>9.3f}{min(ratios):>7.3f}"
            f"{statistics.fmean(preempted):>6.1%}{max(preempted):>5.1%}   {reserve}"
        )


def mean(values: Sequence[float]) -> str:
    spread = statistics.pstdev(values)
    return f"{statistics.fmean(values):.3f}±{spread:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("run", "table"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--worlds", default="all")
    parser.add_argument("--seeds", default=",".join(map(str, SEEDS)))
    parser.add_argument("--parts", default=",".join(PARTS[:3]))
    parser.add_argument("--multiples", default="own,1,2,4,8", help="own: as the world has it")
    parser.add_argument("--risk", type=float, default=KV_RISK, help="of predict")
    asked = parser.parse_args()
    multiples = [None if m == "own" else int(m) for m in asked.multiples.split(",")]
    if asked.what == "table":
        lines = [json.loads(line) for line in asked.file.read_text().splitlines()]
        print("\n".join(table(lines)))
        return
    everywhere = [*WORLDS, *(f"lesson-{gib}" for gib in POOLS_GIB)]
    names = everywhere if asked.worlds == "all" else asked.worlds.split(",")
    with asked.file.open("a") as out:
        for seed in map(int, asked.seeds.split(",")):
            for name in names:
                for part in asked.parts.split(","):
                    for row in rows(part, name, seed, multiples, asked.risk):
                        out.write(json.dumps(row) + "\n")
                        out.flush()


if __name__ == "__main__":
    main()
