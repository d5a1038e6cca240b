"""What a flood does to a quiet tenant on the real server: first tokens under fcfs and under fair.

    python -m benchmarks.policies.flood [--seconds 25] [--seeds 1] [--slots 32]

SmolLM2 with int8 weights behind `headway serve`. The quiet tenant sends a prompt of 100 to 150
tokens now and then (a Poisson process), alone and beside another that asks for several times what
the machine serves, with prompts of 100 to 600 tokens and answers of 32 to 96. No two prompts are
alike. A figure is the time to the quiet tenant's first token at the client's socket, from when it
was sent. The client shares the cores with the server.
"""

from __future__ import annotations

import argparse
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


def first_tokens_ms(server: Server, asked: list[Ask]) -> list[float]:
    """Of the quiet tenant."""
    times, tenants, bodies = zip(*asked, strict=True)
    streams = receive(server.port, "/v1/completions", bodies, times, tenants)
    return [
        (stream.events[0][1] - stream.asked_ns) / 1e6
        for tenant, stream in zip(tenants, streams, strict=True)
        if tenant == "quiet"
    ]


def measure(policy: str, args: argparse.Namespace, *, flooded: bool) -> list[tuple[float, float]]:
    """The 50th and 99th percentile, for each seed."""
    flags = ["--quantization", "int8", "--max-num-seqs", str(args.slots)]
    with running([*flags, "--scheduling-policy", policy]) as server:
        model, found = server.model(), []
        first_tokens_ms(server, asks(0, 5, model, flooded=False))
        for seed in args.seeds:
            waits = first_tokens_ms(server, asks(seed, args.seconds, model, flooded=flooded))
            found.append(tuple(np.percentile(waits, (50, 99)).tolist()))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=25, help="of one run, while they come")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1])
    parser.add_argument("--slots", type=int, default=32, help="--max-num-seqs")
    args = parser.parse_args()
    alone = measure("fcfs", args, flooded=False)
    for name, found in (
        ("alone", alone),
        ("fcfs, flooded", measure("fcfs", args, flooded=True)),
        ("fair, flooded", measure("fair", args, flooded=True)),
    ):
        for seed, (p50, p99), (own_p50, own_p99) in zip(args.seeds, found, alone, strict=True):
            print(
                f"{name:14} seed {seed}: p50 {p50:8.0f} ms, {p50 / own_p50:6.2f} of alone; "
                f"p99 {p99:8.0f} ms, {p99 / own_p99:6.2f} of alone",
                flush=True,
            )


if __name__ == "__main__":
    main()
