"""Does `headway plan` know how many sequences the engine runs at once, and how fast?

    python benchmarks/plan.py [MODEL] [--blocks 512] [--requests 150] [--kv-policy on-demand]
        [--seconds 25]

Steps are measured as `--hardware this-machine` does it, the plan is made, and then the engine
serves so many requests that all come at once, with a small pool. What is counted are the steps in
which the queue is neither new nor nearly empty. Leave the machine alone.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

from headway import LLM, SamplingParams
from headway.cli.plan_question import Asked, asked_of
from headway.insight.plan.planning import make_plan
from headway.replay.files import load_recordings
from headway.replay.measured import replay_and_measure
from headway.simulator.result import Result

PROMPT_TOKENS, OUTPUT_TOKENS = "lognormal:200:0.8:8-2000", "lognormal:60:0.8:4-600"
SETTLED = 0.3  # of the steps with somebody waiting, those that are left out


def asked(arguments: argparse.Namespace) -> Asked:
    own = {
        "--hardware": "this-machine",
        "--calibration-seconds": str(arguments.seconds),
        "--prompt-tokens": PROMPT_TOKENS,
        "--output-tokens": OUTPUT_TOKENS,
    }
    model = [arguments.model] if arguments.model else []
    settings = ["--num-gpu-blocks-override", str(arguments.blocks)]
    return asked_of([*model, *settings, "--kv-policy", arguments.kv_policy], own)


def served(arguments: argparse.Namespace, found: Asked) -> Result:
    """By the engine."""
    rng = np.random.default_rng(arguments.seed)
    demand, count = found.question.demand, arguments.requests
    prompts = demand.prompts.at(rng.random(count)).tolist()
    outputs = demand.outputs.at(rng.random(count)).tolist()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        llm = LLM(
            arguments.model,
            num_gpu_blocks_override=arguments.blocks,
            max_num_seqs=256,
            kv_policy=arguments.kv_policy,
            enable_prefix_caching=False,
            record=str(path),
        )
        llm.generate(
            [rng.integers(1000, 40_000, length).tolist() for length in prompts],
            [SamplingParams(temperature=0, max_tokens=n, ignore_eos=True) for n in outputs],
            use_tqdm=False,
        )
        del llm
        [recording] = load_recordings(path)
    return replay_and_measure(recording)[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model", nargs="?")
    parser.add_argument("--blocks", type=int, default=512)
    parser.add_argument("--requests", type=int, default=150)
    parser.add_argument("--kv-policy", default="on-demand")
    parser.add_argument("--seconds", type=float, default=25)
    parser.add_argument("--seed", type=int, default=7)
    arguments = parser.parse_args()
    found = asked(arguments)
    plan = make_plan(found.question)
    residents = plan.chosen
    print(f"{found.facts['model']} on {found.facts['hardware']}, {found.facts['threads']} threads")
    print(
        f"planned:  {residents.mean:.1f} at once (p5 {residents.p05:.0f}, "
        f"p95 {residents.p95:.0f}), {plan.requests_per_second:.2f} requests/s, "
        f"{plan.loads[-1].step_s * 1e3:.0f} ms a token"
    )
    result = served(arguments, found)
    steps = result.steps
    last = int(np.nonzero(steps["num_waiting"])[0][-1])
    window = slice(int(SETTLED * last), last)
    running, ends = steps["num_running"][window], steps["end_ns"][window]
    ended = result.sequences["ended_ns"]
    seconds = (ends[-1] - ends[0]) / 1e9
    rate = ((ended > ends[0]) & (ended <= ends[-1])).sum() / seconds
    p05, p95 = np.percentile(running, (5, 95))
    print(
        f"measured: {running.mean():.1f} at once (p5 {p05:.0f}, p95 {p95:.0f}), "
        f"{rate:.2f} requests/s, {seconds / (len(ends) - 1) * 1e3:.0f} ms a step; "
        f"{len(ends)} steps, {result.summary().num_preemptions} preemptions"
    )


if __name__ == "__main__":
    main()
