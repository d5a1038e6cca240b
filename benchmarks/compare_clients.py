"""Do other people's load generators see what `headway bench serve` sees?

    python -m benchmarks.compare_clients --tokenizer FOLDER [--guidellm PROGRAM] [--aiperf PROGRAM]
        [--rate 4] [--requests 64] [--rounds 3] [--prompt 128] [--output 32] [--apart]
        [--results FILE]

One server (the default model), requests of equal length at a constant rate, the clients by turns.
Beside what each client says stands what the server's own /metrics say of the same requests: of two
clients that are right, both say what the server says of its run, and the runs are alike but for the
machine's noise. A client that computes more makes the server slower, even from another processor:
two may be halves of one core. --apart gives the server the first processor, and keeps the others
busy when their client is not, so that the server has the same to bear from all.

Between tokens each request counts as one: what guidellm and aiperf call inter-token latency is what
vLLM and `headway bench` call TPOT. FOLDER is a tokenizer as transformers reads it, for the clients
that need one (tests/clients/others/tokenizer_folder.py writes it).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.load.server import Server, running

from headway.bench.server_metrics import read_histograms, since
from headway.bench.target import target_of

Figures = dict[str, float]
SOURCE = Path(__file__).parents[1] / "src"
# Without a prefix cache: some clients ask the same texts in every run.
FLAGS = ["--quantization", "int8", "--kv-cache-memory-bytes", "1g", "--no-enable-prefix-caching"]
COLUMNS = ("tokens_per_second", "ttft_mean", "ttft_p50", "tpot_mean", "e2e_mean")


def headway(args: argparse.Namespace, server: Server, folder: Path) -> Figures:
    report = folder / "headway.json"
    words = [sys.executable, "-m", "headway", "bench", "serve", server.url, "--json", str(report)]
    words += ["--arrivals", f"constant:{args.rate}", "--num-prompts", str(args.requests)]
    words += ["--random-input-len", str(args.prompt), "--random-output-len", str(args.output)]
    run([*words, "--ignore-eos", "--num-warmups", "0"], PYTHONPATH=str(SOURCE))
    (point,) = json.loads(report.read_text())["points"]
    return {
        "tokens_per_second": point["output_tokens_per_second"],
        "ttft_mean": point["ttft_s"]["mean"] * 1e3,
        "ttft_p50": point["ttft_s"]["p50"] * 1e3,
        "tpot_mean": point["tpot_s"]["mean"] * 1e3,
        "e2e_mean": point["e2el_s"]["mean"] * 1e3,
    }


def guidellm(args: argparse.Namespace, server: Server, folder: Path) -> Figures:
    report = folder / "guidellm.json"
    backend = f"target={server.url},model={server.model()},request_format=/v1/completions"
    lengths = f"prompt_tokens={args.prompt},output_tokens={args.output}"
    words = [args.guidellm, "run", "--disable-console", "--backend", f"kind=openai_http,{backend}"]
    words += ["--profile", f"kind=constant,rate={args.rate}"]
    words += ["--constraint", f"kind=max_requests,count={args.requests}"]
    words += ["--tokenizer", f"kind=huggingface_auto,model={args.tokenizer}"]
    words += ["--data", f"kind=synthetic_text,{lengths}", "--output", f"kind=json,path={report}"]
    run(words, HF_HUB_OFFLINE="1", GUIDELLM__MAX_WORKER_PROCESSES="1")
    (benchmark,) = json.loads(report.read_text())["benchmarks"]
    metrics = {name: one.get("successful") for name, one in benchmark["metrics"].items() if one}
    return {
        "tokens_per_second": metrics["output_tokens_per_second"]["mean"],
        "ttft_mean": metrics["time_to_first_token_ms"]["mean"],
        "ttft_p50": metrics["time_to_first_token_ms"]["median"],
        "tpot_mean": metrics["inter_token_latency_ms"]["mean"],
        "e2e_mean": metrics["request_latency"]["mean"] * 1e3,
    }


def aiperf(args: argparse.Namespace, server: Server, folder: Path) -> Figures:
    words = [args.aiperf, "profile", "-m", server.model(), "--url", server.url, "--streaming"]
    words += ["--endpoint-type", "completions", "--tokenizer", args.tokenizer, "--ui", "none"]
    words += ["--request-rate", str(args.rate), "--arrival-pattern", "constant"]
    words += ["--request-count", str(args.requests), "--use-server-token-count"]
    words += ["--isl", str(args.prompt), "--osl", str(args.output)]
    run([*words, "--extra-inputs", "ignore_eos:true", "--artifact-dir", str(folder)])
    report = json.loads((folder / "profile_export_aiperf.json").read_text())
    return {
        "tokens_per_second": report["output_token_throughput"]["avg"],
        "ttft_mean": report["time_to_first_token"]["avg"],
        "ttft_p50": report["time_to_first_token"]["p50"],
        "tpot_mean": report["inter_token_latency"]["avg"],
        "e2e_mean": report["request_latency"]["avg"],
    }


def run(words: list[str], **environment: str) -> None:
    done = subprocess.run(words, env={**os.environ, **environment}, capture_output=True, text=True)
    most = 1 if words[0] == sys.executable else 0  # ours is 1 where the client was disturbed
    if done.returncode > most:
        sys.exit(f"{words[0]} failed:\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}")


def measured(
    client: Callable[[argparse.Namespace, Server, Path], Figures],
    args: argparse.Namespace,
    server: Server,
) -> dict[str, Figures]:
    """What the client says, and what the server says of the same requests."""
    target = target_of(server.url)
    before = read_histograms(target, {})
    with tempfile.TemporaryDirectory() as folder:
        said = client(args, server, Path(folder))
    after = since(before, read_histograms(target, {}))
    names = {"ttft": "ttft_mean", "itl": "tpot_mean", "e2el": "e2e_mean"}
    there = {names[name]: histogram.mean_s * 1e3 for name, histogram in after.items()}
    return {"client": said, "server": {**there, "requests": after["ttft"].count}}


@contextlib.contextmanager
def serving(*, apart: bool) -> Iterator[Server]:
    """With `apart` on the first processor, and whoever is started meanwhile on the others."""
    if not apart:
        with running(FLAGS) as server:
            yield server
        return
    first, *others = sorted(os.sched_getaffinity(0))
    if not others:
        sys.exit("--apart needs two processors")
    os.sched_setaffinity(0, {first})
    with running(FLAGS) as server, contextlib.ExitStack() as stack:
        os.sched_setaffinity(0, others)
        for processor in others:
            stack.enter_context(kept_busy(processor))
        yield server


@contextlib.contextmanager
def kept_busy(processor: int) -> Iterator[None]:
    """By what gives way at once to everybody else."""
    pin = f"os.sched_setaffinity(0, {{{processor}}})"
    yielding = "os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))"
    code = f"import os; {pin}; {yielding}\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", code])
    try:
        yield
    finally:
        process.kill()
        process.wait()


def show(name: str, figures: dict[str, Figures]) -> None:
    parts = []
    for column in COLUMNS:
        there = figures["server"].get(column)
        beside = f" ({there:.2f})" if there is not None else ""
        parts.append(f"{column} {figures['client'][column]:.2f}{beside}")
    print(
        f"{name:9}", "  ".join(parts), f"requests {figures['server']['requests']:.0f}", flush=True
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokenizer", default="")
    parser.add_argument("--guidellm")
    parser.add_argument("--aiperf")
    parser.add_argument("--rate", type=float, default=4)
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=128)
    parser.add_argument("--output", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--results", type=Path)
    args = parser.parse_args()
    clients = {"headway": headway}
    clients |= {name: one for name, one in OTHERS.items() if getattr(args, name)}
    print("milliseconds; in brackets what the server's /metrics say of the same requests")
    with serving(apart=args.apart) as server:
        measured(headway, argparse.Namespace(**{**vars(args), "requests": 8}), server)  # warm
        for turn in range(args.rounds):
            for name in sorted(clients, reverse=bool(turn % 2)):
                figures = measured(clients[name], args, server)
                show(name, figures)
                if args.results:
                    with args.results.open("a") as file:
                        print(json.dumps({"client": name, **figures}), file=file)


OTHERS = {"guidellm": guidellm, "aiperf": aiperf}

if __name__ == "__main__":
    main()
