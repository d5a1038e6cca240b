"""W4: how long do clients wait when requests arrive by chance, with Headway and with other servers?

    python -m benchmarks.compare_http MODELS_FOLDER --capacity TOKENS_PER_SECOND
        [--model smollm2] [--weights bf16] [--shares 0.5 0.9] [--seconds 60] [--rounds 3]
        [--highest] [--vllm PYTHON] [--llamacpp LLAMA_SERVER] [--results FILE]

The requests of W1, streamed, arrive as a Poisson process at shares of one capacity for all (that of
the best peer on W1, see benchmarks/compare.py), engines by turns. Prints the median and the 99th
percentile of the time to the first token and of the time between tokens. --highest instead looks
for the highest rate at which the 99th percentile of the first stays under two seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import shlex
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.load.receiving import Stream, receive
from benchmarks.load.server import HOST, free_port, wait_for_health
from benchmarks.peers import llamacpp, vllm
from benchmarks.peers.engine import CHUNK_TOKENS, CLASSES, MAX_BATCH, Item, Setup
from benchmarks.peers.limits import Shape
from benchmarks.peers.results import ROOT, Results, commit, machine
from benchmarks.peers.session import Noise, wait_for_quiet
from benchmarks.peers.workloads import MODELS, mixed_requests

ENGINES = ("headway", "vllm", "llamacpp")
MAX_LEN, KV_TOKENS, SLOTS, SLOT_TOKENS = 2048, MAX_BATCH * 1024, 16, 1536
MOST_TTFT_MS, SEARCH_STEPS, START_S = 2000.0, 5, 400
RESULTS = ROOT / "benchmarks" / "results" / "served.jsonl"


@dataclass(frozen=True)
class Waits:
    """Milliseconds to the first token and between tokens, over all requests of a run."""

    first: list[float]
    between: list[float]
    tokens_per_second: float

    def figures(self) -> dict[str, float]:
        found = {"tokens_per_second": self.tokens_per_second, "requests": len(self.first)}
        for name, values in (("ttft", self.first), ("itl", self.between)):
            found[f"{name}_p50_ms"] = statistics.median(values)
            found[f"{name}_p99_ms"] = percentile_99(values)
        return found


def percentile_99(values: Sequence[float]) -> float:
    """The least that 99 of 100 do not exceed: of few values the greatest."""
    return sorted(values)[-(-99 * len(values) // 100) - 1]


def brings_token(body: dict[str, Any]) -> bool:
    """Not so an event that only says why it ended, or what was used."""
    choices = body.get("choices")
    return bool(choices) and bool(choices[0]["text"] or not choices[0]["finish_reason"])


def waits(streams: Sequence[Stream]) -> Waits:
    first, between, tokens = [], [], 0
    for stream in streams:
        bodies = [(json.loads(event), at_ns) for event, at_ns in stream.events[:-1]]
        times = [at_ns for body, at_ns in bodies if brings_token(body)]
        first.append((times[0] - stream.asked_ns) / 1e6)
        between += [(b - a) / 1e6 for a, b in itertools.pairwise(times)]
        tokens += bodies[-1][0]["usage"]["completion_tokens"]
    began = min(stream.asked_ns for stream in streams)
    ended = max(stream.events[-1][1] for stream in streams)
    return Waits(first, between, tokens / (ended - began) * 1e9)


def arrivals(rate: float, seconds: float, seed: int) -> list[float]:
    """A Poisson process; the same for every engine."""
    chance, at, found = random.Random(seed), 0.0, []
    while (at := at + chance.expovariate(rate)) < seconds:
        found.append(at)
    return found


def command(engine: str, setup: Setup, program: str, port: int) -> tuple[list[str], dict[str, str]]:
    """Words and environment of a server of `setup` that listens on `port`."""
    if engine == "llamacpp":
        return llamacpp.server_words(setup, port, SLOTS, SLOT_TOKENS), {}
    words = ["--served-model-name", "m", "--host", HOST, "--port", str(port)]
    words += ["--max-model-len", str(MAX_LEN), "--max-num-seqs", str(MAX_BATCH)]
    words += ["--max-num-batched-tokens", str(CHUNK_TOKENS), "--no-enable-prefix-caching"]
    if engine == "vllm":
        model = ["--model", str(setup.folder / vllm.FORMS[setup.weights]), "--dtype", "bfloat16"]
        start = [program, "-m", "vllm.entrypoints.openai.api_server"]
        return [*start, *model, *words], vllm.environment(setup)
    if setup.weights != "bf16":
        words += ["--quantization", setup.weights]
    start = [program, "-m", "headway", "serve", str(setup.folder / "hf")]
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return [*start, *words, "--kv-cache-memory-bytes", str(setup.kv_bytes)], {"PYTHONPATH": path}


@contextlib.contextmanager
def serving(engine: str, setup: Setup, program: str, log: Path) -> Iterator[tuple[int, int]]:
    """Its process and its port, when it has answered."""
    port = free_port()
    words, environment = command(engine, setup, program, port)
    with log.open("ab") as out:
        process = subprocess.Popen(
            words, stdout=out, stderr=out, env={**os.environ, **environment}, start_new_session=True
        )
    try:
        wait_for_health(process, port, START_S)
        receive(port, "/v1/completions", [body(([1] * 16, 8))] * 2)
        yield process.pid, port
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def body(item: Item) -> dict[str, Any]:
    prompt, count = item
    return {
        "model": "m",
        "prompt": prompt,
        "max_tokens": count,
        "temperature": 0,
        "ignore_eos": True,
        "cache_prompt": False,  # llama.cpp's own; the others do not know it
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@dataclass(frozen=True)
class Load:
    items: list[Item]
    seconds: float

    def rate(self, tokens_per_second: float) -> float:
        """Requests a second that ask for so many tokens a second."""
        return tokens_per_second * len(self.items) / sum(count for _, count in self.items)

    def run(self, port: int, tokens_per_second: float, seed: int) -> Waits:
        times = arrivals(self.rate(tokens_per_second), self.seconds, seed)
        asked = [body(self.items[index % len(self.items)]) for index in range(len(times))]
        return waits(receive(port, "/v1/completions", asked, times))


def highest(load: Load, port: int, start: float) -> float:
    """Tokens a second asked for at which the 99th percentile of the first token stays short."""

    def is_short(rate: float) -> bool:
        p99 = percentile_99(load.run(port, rate, seed=1).first)
        print(f"  {rate:.0f} tokens/s: first token p99 {p99:.0f} ms", flush=True)
        return p99 <= MOST_TTFT_MS

    low, high = 0.0, start
    while is_short(high):
        low, high = high, 1.5 * high
    for _ in range(SEARCH_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if is_short(middle) else (low, middle)
    return low


def compare(arguments: argparse.Namespace, programs: dict[str, str]) -> None:
    results = Results(arguments.results)
    origin = {"at": time.strftime("%Y-%m-%dT%H:%M:%S"), "commit": commit()}
    line = shlex.join(["python", "-m", "benchmarks.compare_http", *sys.argv[1:]])
    results.add({"kind": "run", **origin, "command": line, **machine()})
    load = Load(mixed_requests(arguments.model), arguments.seconds)
    for turn in range(1, arguments.rounds + 1):
        for engine, program in programs.items():
            wait_for_quiet()
            setup = make_setup(arguments, program if engine == "llamacpp" else None)
            with serving(engine, setup, program, arguments.log) as (pid, port):
                where = {"kind": "served", "engine": engine, "model": arguments.model}
                where |= {"weights": arguments.weights, "round": turn, **origin}
                if arguments.highest:
                    found = highest(load, port, arguments.capacity)
                    results.add({**where, "highest_tokens_per_second": found})
                    print(turn, engine, f"highest {found:.0f} tokens/s", flush=True)
                    continue
                for share in arguments.shares:
                    noise = Noise(pid)
                    figures = load.run(port, share * arguments.capacity, seed=turn).figures()
                    others, stolen = noise.cores()
                    offered = {"share": share, "offered": share * arguments.capacity}
                    heard = {"others": others, "steal": stolen}  # the client is among the others
                    results.add({**where, **offered, **heard, "figures": figures})
                    shown = "  ".join(f"{name} {value:.1f}" for name, value in figures.items())
                    print(turn, engine, share, shown, flush=True)


def make_setup(arguments: argparse.Namespace, program: str | None) -> Setup:
    folder = arguments.folder / arguments.model
    per_token = Shape.read(folder).kv_bytes_per_token
    threads = len(os.sched_getaffinity(0))
    return Setup(folder, arguments.weights, threads, KV_TOKENS, per_token, MAX_LEN, program)


def table(results: Results) -> Iterator[str]:
    """Medians over the rounds, in markdown."""
    groups: dict[tuple[Any, ...], list[dict[str, float]]] = {}
    for record in results.of_kind("served"):
        if "figures" in record:
            key = record["model"], record["weights"], record["share"], record["engine"]
            groups.setdefault(key, []).append(record["figures"])
    heads = ("model", "weights", "load", "engine", "rounds")
    names = ("tokens_per_second", "ttft_p50_ms", "ttft_p99_ms", "itl_p50_ms", "itl_p99_ms")
    yield "| " + " | ".join([*heads, *names]) + " |"
    yield "|" + " --- |" * (len(heads) + len(names))
    for key, found in sorted(groups.items()):
        middles = [f"{statistics.median(figures[n] for figures in found):.1f}" for n in names]
        yield "| " + " | ".join([*(str(part) for part in key), str(len(found)), *middles]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--capacity", type=float, required=True)
    parser.add_argument("--model", choices=MODELS, default="smollm2")
    parser.add_argument("--weights", choices=CLASSES, default="bf16")
    parser.add_argument("--shares", type=float, nargs="+", default=(0.5, 0.9))
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--highest", action="store_true")
    parser.add_argument("--engines", nargs="+", choices=ENGINES, default=ENGINES)
    parser.add_argument("--vllm", default=os.environ.get("PEER_VLLM"))
    parser.add_argument("--llamacpp", default=os.environ.get("PEER_LLAMACPP"))
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--log", type=Path, default=ROOT / "build" / "compare_http.log")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    arguments.log.parent.mkdir(parents=True, exist_ok=True)
    named = {"headway": sys.executable, "vllm": arguments.vllm, "llamacpp": arguments.llamacpp}
    compare(arguments, {name: path for name in arguments.engines if (path := named[name])})
    print(*table(Results(arguments.results)), sep="\n")


if __name__ == "__main__":
    main()
