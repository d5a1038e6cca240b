"""Where does the time of one engine step go?

    python benchmarks/step.py [--model NAME_OR_PATH] [--batch 1 16] [--context 256] [--prefill 512]

Decode steps at several batch sizes and contexts, and prefills of one prompt, through the real loop:
scheduler, arrays, forward pass, sampling, events. Prints the median milliseconds of a step and how
they divide over the operations, timed where they run, and over everything between them ("outside").
Contexts are not computed first: keys and values are random, which costs the same.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Sequence as SequenceOf
from typing import Any

import numpy as np

from headway.core.events import Event
from headway.core.request import Request, SamplingParams
from headway.core.step import Step, StepResult
from headway.drive.ports import Command, Submit, Withdraw
from headway.engine.build import Engine, assemble
from headway.engine.config import EngineConfig
from headway.model.loader import LoadedModel, load_model
from headway.model.source import ModelSource, resolve
from headway.ops.cpu.backend import CpuOps

BATCHES, CONTEXTS, PREFILLS = (1, 4, 16, 64), (256, 2048), (128, 512, 2048)
BLOCK = 16


class TimedOps:
    """Any Ops; adds up the nanoseconds of each operation that is called by itself.

    Within a forward pass the kernels measure. Outside of it only the output projection is a linear.
    """

    def __init__(self, ops: CpuOps) -> None:
        self._ops = ops
        self.spent_ns: dict[str, float] = defaultdict(float)

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._ops, name)
        if not callable(found):
            return found

        def timed(*args: Any, **named: Any) -> Any:
            started = time.perf_counter_ns()
            result = found(*args, **named)
            part = "lm_head" if name == "linear" else name
            self.spent_ns[part] += time.perf_counter_ns() - started
            return result

        setattr(self, name, timed)
        return timed


class Rig:
    """An engine whose forward passes can be left out while contexts are filled."""

    def __init__(self, source: ModelSource, model: LoadedModel, ops: TimedOps, tokens: int) -> None:
        self.commands: list[Command] = []
        self.ops = ops
        config = EngineConfig(
            num_gpu_blocks_override=tokens // BLOCK + 64,
            max_num_seqs=max(BATCHES),
            max_num_batched_tokens=tokens,  # contexts are filled in one step
            enable_prefix_caching=False,
        )
        self.engine: Engine = assemble(config, source, model, ops, self, (self,))  # type: ignore[arg-type]
        self._compute = self.engine.executor.run
        self._pass: Any = model.decoder.forward_pass
        self._pass.measure_time(True)
        fill(self.engine)

    def take(self) -> list[Command]:
        taken, self.commands = self.commands, []
        return taken

    def wait(self, until_ns: int | None = None) -> bool:
        return bool(self.commands)

    def on_events(self, events: SequenceOf[Event], now_ns: int) -> None:
        pass

    def skip(self, step: Step) -> StepResult:
        return StepResult([1 for c in step.chunks if c.samples])

    def submit(self, count: int, num_tokens: int, max_tokens: int = 1) -> list[str]:
        names = [f"r{index}" for index in range(count)]
        params = SamplingParams(temperature=0.0, max_tokens=max_tokens, ignore_eos=True)
        prompt = tuple(5 + i % 1000 for i in range(num_tokens))
        self.commands += [
            Submit(Request(request_id=name, prompt_token_ids=prompt, sampling=params))
            for name in names
        ]
        return names

    def decode(self, batch: int, context: int, steps: int) -> list[dict[str, float]]:
        names = self.submit(batch, context, steps + BLOCK)
        self.engine.executor.run = self.skip  # type: ignore[method-assign]
        while self.commands or self.engine.scheduler.stats().num_waiting:
            self.engine.loop.turn()
        self.engine.loop.turn()
        self.engine.loop.turn()
        self.engine.executor.run = self._compute  # type: ignore[method-assign]
        times = [self.timed_turn() for _ in range(steps + 1)][1:]
        self.drop(names)
        return times

    def prefill(self, num_tokens: int, runs: int) -> list[dict[str, float]]:
        times = []
        for _ in range(runs):
            names = self.submit(1, num_tokens)
            times.append(self.timed_turn())
            self.drop(names)
        return times

    def drop(self, names: list[str]) -> None:
        self.commands += [Withdraw(name) for name in names]
        self.engine.loop.turn()

    def timed_turn(self) -> dict[str, float]:
        self.ops.spent_ns.clear()
        self._pass.take_times_ns()
        started = time.perf_counter_ns()
        self.engine.loop.turn()
        total = time.perf_counter_ns() - started
        spent_ns = self._pass.take_times_ns() | self.ops.spent_ns
        parts = {name: spent / 1e6 for name, spent in spent_ns.items()}
        return {"step": total / 1e6, **parts, "outside": total / 1e6 - sum(parts.values())}


def fill(engine: Engine) -> None:
    cache = engine.executor._cache
    rng = np.random.default_rng(0)
    for array in (cache.keys, cache.values):
        for layer in array:
            small = rng.standard_normal(layer.size, np.float32)
            layer.reshape(-1)[:] = (
                (small.view(np.uint32) >> 16).astype(np.uint16)
                if layer.dtype == np.uint16
                else small
            )


def row(name: str, times: list[dict[str, float]]) -> str:
    medians = {part: statistics.median(t[part] for t in times) for part in times[0]}
    total = medians.pop("step")
    shares = "  ".join(
        f"{part} {ms:.2f}" for part, ms in sorted(medians.items(), key=lambda i: -i[1])
    )
    low = min(t["step"] for t in times)
    return f"{name:28} {total:9.2f} ms (best {low:.2f}): {shares}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model")
    parser.add_argument("--isa")
    parser.add_argument("--threads", type=int)
    parser.add_argument("-q", "--quantization")
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--batch", type=int, nargs="*", default=BATCHES)
    parser.add_argument("--context", type=int, nargs="*", default=CONTEXTS)
    parser.add_argument("--prefill", type=int, nargs="*", default=PREFILLS)
    args = parser.parse_args()
    ops = TimedOps(CpuOps(args.isa, args.threads))
    source = resolve(args.model)
    model = load_model(source, ops, "bfloat16", quantization=args.quantization)  # type: ignore[arg-type]
    longest = max([*args.context, 0]) + args.steps + 2 * BLOCK
    tokens = max([*(b * longest for b in args.batch), *args.prefill])
    rig = Rig(source, model, ops, tokens)
    print(f"{source.name} on {ops.name}, {ops.num_threads} threads; milliseconds")
    for context in args.context:
        for batch in args.batch:
            times = rig.decode(batch, context, args.steps)
            print(row(f"decode {batch} x {context}", times), flush=True)
    for num_tokens in args.prefill:
        print(row(f"prefill {num_tokens}", rig.prefill(num_tokens, 3)), flush=True)


if __name__ == "__main__":
    main()
