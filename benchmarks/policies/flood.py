"""What a flood does to a quiet tenant on the real server: first tokens under fcfs and under fair.

    python -m benchmarks.policies.flood [--seconds 25] [--seeds 1] [--slots 32] [--rounds 1]
        [--policies fcfs fair]

SmolLM2 with int8 weights behind `headway serve`. The quiet tenant sends a prompt of 100 to 150
tokens now and then (a Poisson process), alone and beside another that asks for several times what
the machine serves, with prompts of 100 to 600 tokens and answers of 32 to 96. No two prompts are
alike. A figure is the time to the quiet tenant's first token at the client's socket, from when it
was sent. Alone and flooded take turns, each on a fresh server, and a run ends when the quiet tenant
has all its answers. In 25 seconds it asks some 45 times, so that the 99th percentile is about the
slowest; 75 seconds make that 145. The client shares the cores with the server.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from random import Random
from typing import Any

import numpy as np
from benchmarks.load.receiving import receive
from benchmarks.load.server import Server, running

VOCABULARY = (1000, 40_000)
QUIET_PER_S, FLOOD_PER_S = 2.0, 6.0
Ask = tuple[float, str, dict[str, Any]]


def body(rng: Random, model: str, prompt: int, output: int) -> dict[str, Any]:
    return {
        "model": model,
        "prompt": [rng.randrange(*VOCABULARY) for _ in range(prompt)],
        "max_tokens": output,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
    }


def asks(seed: int, seconds: float, model: str, *, flooded: bool) -> list[Ask]:
    """When, by whom and what: the quiet tenant's are the same with and without the other."""
    found: list[Ask] = []
    tenants = {"quiet": (QUIET_PER_S, (100, 150), (8, 16))}
    if flooded:
        tenants["flood"] = (FLOOD_PER_S, (100, 600), (32, 96))
    for tenant, (rate, prompts, outputs) in tenants.items():
        rng = Random(f"{seed} {tenant}")
        at_s = 3.0 if tenant == "quiet" else 0.0  # the flood is there before
        while at_s < seconds:
            found.append(
                (at_s, tenant, body(rng, model, rng.randint(*prompts), rng.randint(*outputs)))
            )
            at_s += rng.expovariate(rate)
    return sorted(found, key=lambda ask: ask[0])


@dataclass(frozen=True, slots=True)
class Run:
    waits_ms: list[float]  # of the quiet tenant, from when it asked to its first token
    gaps_ms: list[float]  # of the flood, between two tokens
    events_per_s: float  # of both, one a token

    def row(self) -> str:
        p50, p99 = np.percentile(self.waits_ms, (50, 99))
        told = f"p50 {p50:6.0f} ms, p99 {p99:6.0f} ms of {len(self.waits_ms)}; "
        if self.gaps_ms:
            gaps = np.percentile(self.gaps_ms, (50, 99))
            told += "flood's gaps p50 {:.0f} ms, p99 {:.0f} ms; ".format(*gaps)
        return told + f"{self.events_per_s:.0f} events/s"


def run(server: Server, asked: list[Ask]) -> Run:
    """Until the quiet tenant has all its answers."""
    times, tenants, bodies = zip(*asked, strict=True)
    streams = receive(server.port, "/v1/completions", bodies, times, tenants, until="quiet")
    came = [[at_ns for _, at_ns in stream.events] for stream in streams]
    places = range(len(streams))  # fewer than were to be sent: the flood's last are not
    quiet = [place for place in places if tenants[place] == "quiet"]
    flood = [place for place in places if tenants[place] == "flood"]
    span_s = (max(came[place][-1] for place in quiet) - streams[0].asked_ns) / 1e9
    return Run(
        waits_ms=[(came[place][0] - streams[place].asked_ns) / 1e6 for place in quiet],
        gaps_ms=[gap / 1e6 for place in flood for gap in np.diff(came[place]).tolist()],
        events_per_s=sum(map(len, came)) / span_s,
    )


def measure(policy: str, seed: int, args: argparse.Namespace, *, flooded: bool) -> Run:
    """On a server of its own, to which the quiet tenant is known."""
    flags = ["--quantization", "int8", "--max-num-seqs", str(args.slots)]
    with running([*flags, "--scheduling-policy", policy]) as server:
        model = server.model()
        run(server, asks(0, 5, model, flooded=False))
        return run(server, asks(seed, args.seconds, model, flooded=flooded))


def pooled(runs: list[Run]) -> Run:
    """As if they were one."""
    return Run(
        waits_ms=[wait for one in runs for wait in one.waits_ms],
        gaps_ms=[gap for one in runs for gap in one.gaps_ms],
        events_per_s=float(np.mean([one.events_per_s for one in runs])),
    )


def ratios(found: Run, alone: Run) -> str:
    own, its = (np.percentile(one.waits_ms, (50, 99)) for one in (alone, found))
    return "p50 {:.2f}, p99 {:.2f} of alone".format(*(its / own))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=25, help="of one run, while they come")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1])
    parser.add_argument("--slots", type=int, default=32, help="--max-num-seqs")
    parser.add_argument("--policies", nargs="*", default=["fcfs", "fair"], help="beside the flood")
    parser.add_argument("--rounds", type=int, default=1, help="how often all of it")
    args = parser.parse_args()
    all_runs: dict[str, list[Run]] = {"alone": [], **{name: [] for name in args.policies}}
    for _ in range(args.rounds):
        for seed in args.seeds:
            for name, runs in all_runs.items():
                flooded = name != "alone"
                runs.append(measure(name if flooded else "fcfs", seed, args, flooded=flooded))
                told = ratios(runs[-1], all_runs["alone"][-1])
                print(f"{name:5} seed {seed}: {told}; {runs[-1].row()}", flush=True)
    for name, runs in all_runs.items():
        both = pooled(runs)
        print(f"{name:5} all: {ratios(both, pooled(all_runs['alone']))}; {both.row()}", flush=True)


if __name__ == "__main__":
    main()
