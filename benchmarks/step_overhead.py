"""What does a step cost besides its kernels?

    python -m benchmarks.step_overhead [--running 1 16 64] [--sampling greedy top_p penalties]

The real loop, scheduler, executor, sampler and messages to another process, around a decoder that
computes nothing: in its place memory is read, so that everything else finds caches as cold as a
forward pass leaves them. Decode steps with nobody coming or going; a step that admits or ends
somebody costs more. Prints medians in microseconds of a step, without the sampling kernel, which is
shown apart, and how they divide:

    schedule    who computes what           arrays    the step as arrays for the forward pass
    sampling    parameters, masks, tokens   complete  tokens to their sequences, endings
    events      to the other process        rest      the loop itself, and reading the clock
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import zmq

from headway.core.config import SchedulerConfig
from headway.core.request import Request, SamplingParams
from headway.core.scheduler import Scheduler
from headway.drive.loop import EngineLoop
from headway.drive.ports import Command, Submit, Withdraw
from headway.engine.clock import RealClock
from headway.engine.executor import ModelExecutor
from headway.engine.garbage import rarely_look_for_garbage
from headway.engine.process import Outbox
from headway.ops.cpu.backend import CpuOps
from headway.ops.interface import TokenBatch

RUNNING = (1, 16, 64, 256, 1024)
PROMPT, BLOCK, VOCAB, SWEEP_MB = 256, 16, 49152, 64
SAMPLING: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0.0},
    "top_p": {"temperature": 0.8, "top_p": 0.9},
    "penalties": {"temperature": 0.8, "repetition_penalty": 1.1, "presence_penalty": 0.2},
}


class Stopwatch:
    """Nanoseconds by part, without those of the parts within."""

    def __init__(self) -> None:
        self.spent_ns: dict[str, int] = defaultdict(int)
        self._inner = [0]

    def wrap(self, owner: Any, name: str, part: str) -> None:
        function: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **named: Any) -> Any:
            self._inner.append(0)
            started = time.perf_counter_ns()
            try:
                return function(*args, **named)
            finally:
                spent = time.perf_counter_ns() - started
                self.spent_ns[part] += spent - self._inner.pop()
                self._inner[-1] += spent

        setattr(owner, name, timed)


class StandIn:
    """A decoder's interface: sweeps the caches, and has logits ready."""

    def __init__(self, most_rows: int) -> None:
        self._swept = np.ones(SWEEP_MB << 17, np.float64)
        rng = np.random.default_rng(0)
        self._logits = 3 * rng.standard_normal((most_rows, VOCAB), np.float32)

    def hidden_states(self, batch: TokenBatch, cache: object) -> np.ndarray:
        self._swept.sum()
        return np.empty((len(batch.logit_rows), 1), np.float32)

    def logits(self, hidden: np.ndarray) -> np.ndarray:
        return self._logits[: len(hidden)]


class Rig:
    """One engine without a model."""

    def __init__(self, running: int, sampling: dict[str, Any], address: str) -> None:
        self.commands: list[Command] = []
        self.watch = Stopwatch()
        ops = CpuOps()
        config = SchedulerConfig(
            max_num_seqs=running,
            max_num_batched_tokens=1 << 20,
            max_model_len=8192,
            block_size=BLOCK,
        )
        self.scheduler = Scheduler(config, num_blocks=running * (PROMPT // BLOCK + 40))
        decoder: Any = StandIn(min(running, 64))
        cache: Any = SimpleNamespace(block_size=BLOCK)
        executor = ModelExecutor(decoder, cache, ops)
        socket = zmq.Context.instance().socket(zmq.PUSH)
        socket.set_hwm(0)
        socket.connect(address)
        outbox = Outbox(socket)
        engine: Any = SimpleNamespace(scheduler=self.scheduler, executor=executor)
        outbox.attach(engine)
        self.loop = EngineLoop(
            self.scheduler,
            clock=RealClock(),
            inbox=self,
            executor=executor,
            listeners=(outbox, executor),
        )
        self._wrap(decoder, ops, executor, outbox)
        self._submit(running, SamplingParams(**sampling, max_tokens=4000, ignore_eos=True))

    def _wrap(self, decoder: Any, ops: CpuOps, executor: ModelExecutor, outbox: Outbox) -> None:
        for owner, name, part in (
            (self.scheduler, "schedule", "schedule"),
            (self.scheduler, "complete", "complete"),
            (executor._planner, "plan", "arrays"),
            (executor, "_sample", "sampling"),
            (executor, "on_events", "events"),
            (outbox, "on_events", "events"),
            (decoder, "hidden_states", "model"),
            (decoder, "logits", "model"),
            (ops, "sample", "kernel"),
            (ops, "argmax", "kernel"),
        ):
            self.watch.wrap(owner, name, part)

    def _submit(self, count: int, params: SamplingParams) -> None:
        rng = np.random.default_rng(1)
        for index in range(count):
            prompt = tuple(rng.integers(5, VOCAB, PROMPT + index % BLOCK).tolist())
            name = f"cmpl-{index:032x}-0"
            request = Request(request_id=name, prompt_token_ids=prompt, sampling=params, seed=index)
            self.commands.append(Submit(request))

    def take(self) -> list[Command]:
        taken, self.commands = self.commands, []
        return taken

    def wait(self, until_ns: int | None = None) -> bool:
        return bool(self.commands)

    def turn(self) -> dict[str, float]:
        self.watch.spent_ns.clear()
        started = time.perf_counter_ns()
        self.loop.turn()
        total = time.perf_counter_ns() - started
        parts = {name: spent / 1e3 for name, spent in self.watch.spent_ns.items()}
        rest = total / 1e3 - sum(parts.values())
        outside = total / 1e3 - parts["model"] - parts.get("kernel", 0)
        return {"outside": outside, **parts, "rest": rest}

    def churn(self) -> dict[str, float]:
        """A turn in which somebody leaves and somebody else takes the place."""
        oldest = next(iter(self.scheduler.live_request_ids()))
        params = SamplingParams(temperature=0.0, max_tokens=4000, ignore_eos=True)
        prompt = tuple(range(5, 5 + PROMPT))
        request = Request(request_id=f"n{oldest}", prompt_token_ids=prompt, sampling=params)
        self.commands += [Withdraw(oldest), Submit(request)]
        return self.turn()


def drain(address: str) -> None:
    socket = zmq.Context.instance().socket(zmq.PULL)
    socket.set_hwm(0)
    socket.bind(address)
    while socket.recv() != b"end":
        pass


def line(name: str, turns: list[dict[str, float]]) -> str:
    medians = {part: statistics.median(turn[part] for turn in turns) for part in turns[0]}
    columns = ("schedule", "arrays", "sampling", "complete", "events", "rest", "kernel")
    parts = "".join(f"{medians.get(part, 0):10.0f}" for part in columns)
    return f"{name:24}{medians['outside']:10.0f}{parts}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--running", type=int, nargs="*", default=RUNNING)
    parser.add_argument("--sampling", nargs="*", choices=SAMPLING, default=["greedy", "top_p"])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--churn", action="store_true", help="one leaves and one comes every step")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        address = f"ipc://{folder}/events"
        reader = multiprocessing.get_context("spawn").Process(target=drain, args=(address,))
        reader.start()
        names = ("outside", "schedule", "arrays", "sampling", "complete", "events", "rest")
        print(f"{'us per step':24}" + "".join(f"{n:>10}" for n in (*names, "kernel")))
        for sampling in args.sampling:
            for running in args.running:
                rig = Rig(running, SAMPLING[sampling], address)
                rarely_look_for_garbage()  # as the engine's process does
                turn = rig.churn if args.churn else rig.turn
                turns = [turn() for _ in range(args.steps + 5)][5:]
                print(line(f"{running} {sampling}", turns), flush=True)
        end = zmq.Context.instance().socket(zmq.PUSH)
        end.connect(address)
        end.send(b"end")
        reader.join()


if __name__ == "__main__":
    main()
