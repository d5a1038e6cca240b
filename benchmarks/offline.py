"""How fast is offline generation, and against what?

    python benchmarks/offline.py [--runs 3] [--no-peer] [--int8]

W1: 64 mixed requests at once (9,876 prompt tokens, 6,157 output tokens, greedy, end of sequence
ignored). W2: one stream, 128 tokens in, 128 out. The peer is transformers' continuous batching
(`generate_batch`) on the same weights in bfloat16, in the same run, engine by turns, each in a
process of its own so that peak memory is its own. With --int8 Headway runs with int8 weights, too.
Prints medians with the spread.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
W2_IN, W2_OUT = 128, 128
ENGINES = ("headway", "headway-int8", "transformers")


def workload() -> list[tuple[list[int], int]]:
    items = json.loads((HERE / "workloads" / "w1.json").read_text())
    return [(item["prompt"], item["output"]) for item in items]


def run_headway(quantization: str | None) -> dict[str, float]:
    from headway import LLM, SamplingParams

    def greedy(max_tokens: int) -> SamplingParams:
        return SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True)

    started = time.perf_counter()
    llm = LLM(
        quantization=quantization,
        kv_cache_memory_bytes=1 << 30,
        max_num_seqs=64,
        enable_prefix_caching=False,
    )
    load_s = time.perf_counter() - started
    items = workload()
    llm.generate([items[0][0][:16]], greedy(4), use_tqdm=False)
    started = time.perf_counter()
    outputs = llm.generate([p for p, _ in items], [greedy(n) for _, n in items], use_tqdm=False)
    w1_s = time.perf_counter() - started
    assert [len(o.outputs[0].token_ids) for o in outputs] == [n for _, n in items]
    prompt = (items[3][0] * 60)[:W2_IN]
    started = time.perf_counter()
    llm.generate([prompt], greedy(1), use_tqdm=False)
    first_s = time.perf_counter() - started
    started = time.perf_counter()
    llm.generate([prompt], greedy(W2_OUT), use_tqdm=False)
    return _figures(load_s, w1_s, first_s, time.perf_counter() - started)


def run_transformers(model_dir: str) -> dict[str, float]:
    import torch
    from transformers import AutoModelForCausalLM, GenerationConfig
    from transformers.generation.configuration_utils import ContinuousBatchingConfig

    torch.set_num_threads(len(os.sched_getaffinity(0)))
    started = time.perf_counter()
    model = AutoModelForCausalLM.from_pretrained(
        model_dir, dtype=torch.bfloat16, attn_implementation="sdpa"
    ).eval()
    load_s = time.perf_counter() - started
    generation = GenerationConfig(
        do_sample=False, max_new_tokens=512, eos_token_id=-1, pad_token_id=0, use_cache=True
    )
    batching = ContinuousBatchingConfig(
        page_size=32,
        num_blocks=1024,
        max_batch_tokens=512,
        max_requests_per_batch=64,
        allow_block_sharing=False,
    )
    engine = model.init_continuous_batching(
        generation_config=generation, continuous_batching_config=batching
    )
    engine.start()

    def go(items: list[tuple[list[int], int]]) -> float:
        started = time.perf_counter()
        for prompt, count in items:
            engine.add_request(list(prompt), max_new_tokens=count, eos_token_id=-1)
        left, made = len(items), 0
        while left:
            result = engine.get_result(timeout=1)
            if result is not None and result.is_finished():
                left -= 1
                made += len(result.generated_tokens)
            elif result is None and not engine.is_running():
                raise RuntimeError("the generation thread ended")
        assert made == sum(count for _, count in items)
        return time.perf_counter() - started

    items = workload()
    go([(items[0][0][:16], 4)])
    w1_s = go(items)
    prompt = (items[3][0] * 60)[:W2_IN]
    figures = _figures(load_s, w1_s, go([(prompt, 1)]), go([(prompt, W2_OUT)]))
    print(json.dumps(figures), flush=True)
    os._exit(0)  # its threads do not end by themselves


def _figures(load_s: float, w1_s: float, first_s: float, all_s: float) -> dict[str, float]:
    return {
        "load_s": load_s,
        "w1_s": w1_s,
        "w1_output_tokens_per_second": sum(n for _, n in workload()) / w1_s,
        "w2_ttft_ms": first_s * 1e3,
        "w2_ms_per_token": (all_s - first_s) / (W2_OUT - 1) * 1e3,
        "peak_rss_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def in_own_process(engine: str, *extra: str) -> dict[str, float]:
    command = [sys.executable, __file__, "--engine", engine, *extra]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{engine} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def export_for_transformers(folder: str) -> str:
    """The default model's GGUF weights as a bfloat16 directory."""
    import torch
    from transformers import AutoModelForCausalLM, GgufConfig

    from headway.model.source import resolve

    gguf = Path(resolve(None).path)
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent,
        gguf_file=gguf.name,
        dtype=torch.bfloat16,
        quantization_config=GgufConfig(dequantize=True),
    )
    model.save_pretrained(folder)
    return folder


def compare(runs: int, with_peer: bool, with_int8: bool) -> None:
    results: dict[str, list[dict[str, float]]] = {"headway": []}
    if with_int8:
        results["headway-int8"] = []
    with tempfile.TemporaryDirectory() as folder:
        if with_peer:
            results["transformers"] = []
            export_for_transformers(folder)
        for _ in range(runs):
            for engine, figures in results.items():
                extra = [folder] if engine == "transformers" else []
                figures.append(in_own_process(engine, *extra))
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {runs} runs")
    for engine, figures in results.items():
        for name in figures[0]:
            values = [f[name] for f in figures]
            middle = statistics.median(values)
            print(
                f"{engine:14s} {name:30s} {middle:10.2f}  [{min(values):.2f} .. {max(values):.2f}]"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--engine", choices=ENGINES, help=argparse.SUPPRESS)
    parser.add_argument("folder", nargs="?", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.engine == "headway":
        print(json.dumps(run_headway(None)))
    elif args.engine == "headway-int8":
        print(json.dumps(run_headway("int8")))
    elif args.engine == "transformers":
        run_transformers(args.folder)
    else:
        compare(args.runs, not args.no_peer, args.int8)


if __name__ == "__main__":
    main()
