"""What explaining costs, and whether explanations of a real server's requests add up.

    python -m benchmarks.explain cost [--pairs 3] [--share 0.25]
    python -m benchmarks.explain crowd [--requests 1000]
    python -m benchmarks.explain step

`cost`: W1 (docs/benchmarks.md: 64 mixed requests at once, greedy) through 64 streams, with
--explain-buffer 0 and with the usual one by turns; tokens per second and processor time of the two
processes. `crowd`: short requests with shared beginnings, a pool that the running outgrow and
clients that leave; each request must be explained, add up to the nanosecond, and be cut as the
recording of the same run is to a millisecond, or it exits with 1. Beside that, how far the clients'
own clock is from it.
`step`: what one step of 64 decodes costs more in each process, without a model.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import httpx
from benchmarks.load.receiving import receive
from benchmarks.load.server import Server, processor_seconds, running
from benchmarks.serve_cost import KV_BYTES, NUM_SEQS, _body, workload

from headway.cli.explained_recording import explain_recording, pool_of
from headway.core.config import SchedulerConfig
from headway.core.request import Request, SamplingParams
from headway.core.scheduler import Scheduler
from headway.core.step import StepResult
from headway.drive.record import brief_of
from headway.insight.explain.fold import Explainer
from headway.insight.explain.report import PARTS, Explanation, Glance

_CLIENTS = 24
_MS = 1e6


# ---- What it costs ----


def compare(pairs: int, share: float) -> None:
    work = workload(share)
    num_tokens = sum(count for _, count in work)
    figures: dict[str, list[tuple[float, float, float]]] = {"0": [], "10000": []}
    for pair in range(pairs):
        for buffer in sorted(figures, reverse=bool(pair % 2)):
            figures[buffer].append(_served(work, buffer))
    _compare_pairs(figures["0"], figures["10000"])
    for buffer, runs in figures.items():
        speeds = [num_tokens / seconds for seconds, _, _ in runs]
        api = [1e6 * used / num_tokens for _, used, _ in runs]
        engine = [1e6 * used / num_tokens for _, _, used in runs]
        print(f"--explain-buffer {buffer}")
        _show("output tokens per second", speeds)
        _show("API process, us of processor per token", api)
        _show("engine process, us of processor per token", engine)


def _compare_pairs(
    without: list[tuple[float, float, float]],
    with_it: list[tuple[float, float, float]],
) -> None:
    """In percent, each run against its neighbour."""
    pairs = list(zip(without, with_it, strict=True))
    print("with explanations against without, in pairs, %")
    _show("output tokens per second", [100 * (off[0] / on[0] - 1) for off, on in pairs])
    used = [100 * (sum(on[1:]) / sum(off[1:]) - 1) for off, on in pairs]
    _show("processor time of both processes", used)
    if len(used) > 1:
        error = statistics.stdev(used) / len(used) ** 0.5
        print(f"  its mean {statistics.mean(used):+.2f}, standard error {error:.2f}")


def _served(work: list[tuple[list[int], int]], buffer: str) -> tuple[float, float, float]:
    """Seconds, and processor seconds of the API process and of the engine."""
    flags = ["--kv-cache-memory-bytes", str(KV_BYTES), "--max-num-seqs", str(NUM_SEQS)]
    flags += ["--no-enable-prefix-caching", "--quantization", "int8", "--explain-buffer", buffer]
    with running(flags) as server:
        receive(server.port, "/v1/completions", [_body(work[0][0][:16], 4)])
        pids = (server.process.pid, server.engine_pid)
        used = [processor_seconds(pid) for pid in pids]
        began = time.perf_counter()
        receive(server.port, "/v1/completions", [_body(*item) for item in work])
        seconds = time.perf_counter() - began
        api, engine = (
            processor_seconds(pid) - before for pid, before in zip(pids, used, strict=True)
        )
    return seconds, api, engine


def _show(name: str, values: list[float]) -> None:
    middle = statistics.median(values)
    print(f"  {name:42s} {middle:9.2f}  [{min(values):.2f} .. {max(values):.2f}]", flush=True)


# ---- What a step costs ----


def step_costs(num_sequences: int = 64, num_steps: int = 2000) -> None:
    """Medians of microseconds: what the engine does more for a step, and the API process."""
    config = SchedulerConfig(max_num_seqs=num_sequences, max_num_batched_tokens=4096)
    scheduler = Scheduler(config, 100 * num_sequences)
    explainer = Explainer(pool_of(config), buffer=1)
    engine, api = [], []
    for number in range(num_sequences):
        asked = Request(
            request_id=f"r{number}",
            prompt_token_ids=(1,) * 20,
            sampling=SamplingParams(max_tokens=num_steps + 1),
            arrival_ns=1,
        )
        explainer.on_submitted(asked, 1)
        explainer.on_events(scheduler.add(asked, 1), 1)
    for number in range(1, num_steps):
        start_ns, end_ns = number * 10_000_000, (number + 1) * 10_000_000
        step = scheduler.schedule(start_ns)
        explainer.on_events(step.admitted, start_ns)
        sampled = [5] * len(step.chunks)
        events = scheduler.complete(step, StepResult(sampled), end_ns)
        began = time.perf_counter_ns()
        brief = brief_of(step, start_ns, end_ns)
        told = time.perf_counter_ns()
        explainer.on_step(brief)
        explainer.on_events(events, end_ns)
        api.append((time.perf_counter_ns() - told) / 1e3)
        engine.append((told - began) / 1e3)
    print(f"a step of {num_sequences} decodes, us")
    _show("more in the engine process", engine)
    _show("more in the API process", api)


# ---- Whether it adds up ----


def crowd(count: int) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        recording = Path(folder) / "run.jsonl"
        flags = ["--num-gpu-blocks-override", "100", "--max-num-seqs", "16"]
        flags += ["--max-num-batched-tokens", "128", "--quantization", "int8"]
        flags += ["--max-model-len", "1024", "--kv-policy", "on-demand", "--record", str(recording)]
        with running(flags) as server:
            measured = asyncio.run(_ask_all(server, count))
            live = {name: _explained(server, name) for name in measured}
        replayed = explain_recording(str(recording), None, count)
    assert isinstance(replayed, list)
    return _report(measured, live, {glance.request_id: glance for glance in replayed})


async def _ask_all(server: Server, count: int) -> dict[str, int | None]:
    """By request: nanoseconds at the client, None for one that left."""
    found: dict[str, int | None] = {}
    numbers = iter(range(count))

    async def client(http: httpx.AsyncClient) -> None:
        for number in numbers:
            found[f"cmpl-crowd{number}-0"] = await _ask(http, server.url, number)

    async with httpx.AsyncClient(timeout=600) as http:
        await asyncio.gather(*(client(http) for _ in range(_CLIENTS)))
    return found


async def _ask(http: httpx.AsyncClient, url: str, number: int) -> int | None:
    draw = random.Random(number)
    shared = "You are a careful assistant who answers in few words. " * (number % 3)
    prompt = shared + " ".join(str(draw.randrange(1000)) for _ in range(draw.choice((5, 20, 120))))
    body = {"prompt": prompt, "max_tokens": draw.randrange(2, 40), "ignore_eos": True}
    headers = {"x-request-id": f"crowd{number}"}
    timeout = draw.uniform(0.05, 0.5) if number % 12 == 5 else 600.0
    began = time.monotonic_ns()
    try:
        answer = await http.post(
            f"{url}/v1/completions", json=body, headers=headers, timeout=timeout
        )
        answer.raise_for_status()
    except httpx.ReadTimeout:
        return None
    return time.monotonic_ns() - began


def _explained(server: Server, name: str) -> Explanation | None:
    import msgspec

    status, content = server.get(f"/v1/requests/{name}/explain", 30)
    return msgspec.json.decode(content, type=Explanation) if status == 200 else None


def _report(
    measured: dict[str, int | None],
    live: dict[str, Explanation | None],
    recorded: dict[str, Glance],
) -> bool:
    known = {name: one for name, one in live.items() if one is not None}
    errors = [abs(sum(s.parts_ns.values()) - s.e2e_ns) for e in known.values() for s in e.sequences]
    outside = [
        (ns - known[name].e2e_ns) / _MS
        for name, ns in measured.items()
        if ns is not None and name in known
    ]
    sequences = [e.sequences[0] for e in known.values()]
    print(f"{len(measured)} requests, {len(known)} explained; of these")
    for what, number in (
        ("left", sum(ns is None for ns in measured.values())),
        ("preempted", sum(s.preemptions > 0 for s in sequences)),
        ("prompts in several chunks", sum(s.prefill.steps > 1 for s in sequences)),
        ("with tokens from the cache", sum(s.prefill.cached_tokens > 0 for s in sequences)),
        ("stalled by others", sum(s.parts_ns["stall"] > 0 for s in sequences)),
    ):
        print(f"  {number:5} {what}")
    print(f"largest |sum of parts - e2e|: {max(errors)} ns")
    print(
        f"client's clock less e2e: median {statistics.median(outside):.2f} ms, "
        f"from {min(outside):.2f} to {max(outside):.2f}"
    )
    # Who left did so for the server at once, and in the recording with the next step.
    far = [_distance(known[n], one) for n, one in recorded.items() if measured[n] is not None]
    print(
        f"of {len(far)}, parts differ from the recording's by {max(far) / _MS:.3f} ms at most; "
        f"by more than 1 ms: {sum(ns > _MS for ns in far)}"
    )
    causes: dict[str, int] = {}
    for one in known.values():
        causes[one.cause] = causes.get(one.cause, 0) + 1
    print("causes:", ", ".join(f"{k} {v}" for k, v in sorted(causes.items(), key=lambda i: -i[1])))
    return len(known) == len(measured) and max(errors) == 0 and max(far) <= _MS


def _distance(live: Explanation, recorded: Glance) -> int:
    """But for the delivery, of which a recording knows nothing."""
    parts = [part for part in PARTS if part != "delivery"]
    return max(abs(live.parts_ns[p] - recorded.parts_ns[p]) for p in parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("cost", "crowd", "step"))
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--share", type=float, default=0.25, help="of each output's length")
    parser.add_argument("--requests", type=int, default=1000)
    args = parser.parse_args()
    if args.what == "step":
        step_costs()
        return 0
    if args.what == "cost":
        compare(args.pairs, args.share)
        return 0
    return 0 if crowd(args.requests) else 1


if __name__ == "__main__":
    sys.exit(main())
