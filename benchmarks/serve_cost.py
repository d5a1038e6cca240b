"""What does HTTP cost? The same 64 requests through 64 streams and through LLM.generate.

    python -m benchmarks.serve_cost [--pairs 3] [--share 1.0]

W1 (see docs/benchmarks.md: 64 mixed requests at once, greedy, end of sequence ignored; --share
shortens the outputs), both ways by turns, each engine in processes of its own with the same
settings. Then the time from the end of a step, in the engine process, to the arrival of a token's
bytes at the client's socket. Prints medians with the spread; exits with 1 when a bar is missed.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.load.receiving import Stream, receive
from benchmarks.load.server import processor_seconds, running

WORKLOAD = Path(__file__).parent / "workloads" / "w1.json"
KV_BYTES, NUM_SEQS = 1 << 30, 64
LEAST_RATIO, MOST_DELAY_MS = 0.93, 2.0
Work = list[tuple[list[int], int]]


def workload(share: float) -> Work:
    items = json.loads(WORKLOAD.read_text())
    return [(item["prompt"], max(1, int(item["output"] * share))) for item in items]


def offline_tokens_per_second(share: float) -> float:
    words = [sys.executable, "-m", "benchmarks.serve_cost", "--offline", "--share", str(share)]
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"the offline run failed:\n{done.stderr[-2000:]}")
    return float(done.stdout.strip().splitlines()[-1])


def run_offline(work: Work) -> float:
    from headway import LLM, SamplingParams

    def greedy(max_tokens: int) -> SamplingParams:
        return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)

    llm = LLM(kv_cache_memory_bytes=KV_BYTES, max_num_seqs=NUM_SEQS, enable_prefix_caching=False)
    llm.generate([work[0][0][:16]], greedy(4), use_tqdm=False)
    began = time.perf_counter()
    outputs = llm.generate([p for p, _ in work], [greedy(n) for _, n in work], use_tqdm=False)
    return sum(len(o.outputs[0].token_ids) for o in outputs) / (time.perf_counter() - began)


@dataclass(frozen=True)
class Served:
    """One run over HTTP. `microseconds` of processor time in the API process, per token."""

    tokens_per_second: float
    microseconds: float
    streams: list[Stream]


def served(work: Work, times: Path | None = None) -> Served:
    """All at once, a stream each; step times are noted where `times` says."""
    flags = ["--kv-cache-memory-bytes", str(KV_BYTES), "--max-num-seqs", str(NUM_SEQS)]
    flags.append("--no-enable-prefix-caching")
    module = "headway"
    if times is not None:
        os.environ["HEADWAY_STEP_TIMES"] = str(times)
        module = "benchmarks.load.timed"
    with running(flags, module=module) as server:
        receive(server.port, "/v1/completions", [_body(work[0][0][:16], 4)])
        began, used = time.perf_counter(), processor_seconds(server.process.pid)
        streams = receive(server.port, "/v1/completions", [_body(*item) for item in work])
        seconds = time.perf_counter() - began
        used = processor_seconds(server.process.pid) - used
    for stream, (_, count) in zip(streams, work, strict=True):
        usage = json.loads(stream.events[-2][0])["usage"]
        assert usage["completion_tokens"] == count, (usage, count)
    num_tokens = sum(count for _, count in work)
    return Served(num_tokens / seconds, used / num_tokens * 1e6, streams)


def _body(prompt: Sequence[int], max_tokens: int) -> dict[str, object]:
    return {
        "prompt": list(prompt),
        "max_tokens": max_tokens,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True, "continuous_usage_stats": True},
    }


def delays_ms(streams: Sequence[Stream], times: Path) -> list[float]:
    """Per event with text: from the end of the step of its last token to its arrival."""
    ended: dict[str, list[int]] = collections.defaultdict(list)
    for line in times.read_text().splitlines():
        request_id, _, end_ns = line.rsplit(" ", 2)
        ended[request_id].append(int(end_ns))
    delays = []
    for stream in streams:
        bodies = [(json.loads(event), at_ns) for event, at_ns in stream.events[:-2]]
        steps = ended[f"{bodies[0][0]['id']}-0"]
        for body, at_ns in bodies:
            delays.append((at_ns - steps[body["usage"]["completion_tokens"] - 1]) / 1e6)
    return delays


def measure_delays(work: Work) -> list[float]:
    with tempfile.TemporaryDirectory() as folder:
        times = Path(folder) / "times"
        return delays_ms(served(work, times).streams, times)


def compare(pairs: int, share: float) -> bool:
    print(f"{platform.machine()}, {os.cpu_count()} cores, {pairs} pairs, share {share}", flush=True)
    work = workload(share)
    offline, http, costs = [], [], []
    for _ in range(pairs):
        offline.append(offline_tokens_per_second(share))
        run = served(work)
        http.append(run.tokens_per_second)
        costs.append(run.microseconds)
    _show("offline, output tokens per second", offline)
    _show("64 streams, output tokens per second", http)
    _show("streams / offline", [h / o for h, o in zip(http, offline, strict=True)])
    _show("API process, µs of processor per token", costs)
    ratio = statistics.median(http) / statistics.median(offline)
    delay = {n: measure_delays(work[:n]) for n in (NUM_SEQS, 1)}
    for count, values in delay.items():
        _show_delays(f"step to socket, {count} streams, ms", values)
    print(f"ratio of medians {ratio:.3f}, bar {LEAST_RATIO}; delay bar {MOST_DELAY_MS} ms (median)")
    return ratio >= LEAST_RATIO and all(
        statistics.median(values) <= MOST_DELAY_MS for values in delay.values()
    )


def _show(name: str, values: list[float]) -> None:
    middle, low, high = statistics.median(values), min(values), max(values)
    print(f"{name:40s} {middle:9.3f}  [{low:.3f} .. {high:.3f}]", flush=True)


def _show_delays(name: str, values: list[float]) -> None:
    cuts = statistics.quantiles(values, n=100)
    print(f"{name:40s} {cuts[49]:9.3f}  p90 {cuts[89]:.3f}  p99 {cuts[98]:.3f}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--share", type=float, default=1.0, help="of each output's length")
    parser.add_argument("--offline", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--delays", action="store_true", help="only the times to the socket")
    args = parser.parse_args()
    if args.offline:
        print(run_offline(workload(args.share)))
        return 0
    if args.delays:
        for count in (NUM_SEQS, 1):
            delays = measure_delays(workload(args.share)[:count])
            _show_delays(f"step to socket, {count} streams, ms", delays)
        return 0
    return 0 if compare(args.pairs, args.share) else 1


if __name__ == "__main__":
    sys.exit(main())
