"""What does a step cost besides its kernels?

    python -m benchmarks.step_overhead [--running 1 16 64] [--sampling greedy top_p penalties]
        [--scheduling-policy fcfs fair] [--tenants 1 4] [--kv-policy on-demand predict]
        [--waiting 64] [--churn]

The real loop, scheduler, executor, sampler and messages to another process, around a decoder that
computes nothing: in its place memory is read, so that everything else finds caches as cold as a
forward pass leaves them. Decode steps with nobody coming or going, or with `--churn` one of each in
every step; `--waiting` so many wait for a slot all the time. Prints the mean and the median in
microseconds of a step, without the sampling kernel, which is shown apart, and how the median
divides:

    schedule    who computes what           arrays    the step as arrays for the forward pass
    sampling    parameters, masks, tokens   complete  tokens to their sequences, endings
    events      to the other process        rest      the loop itself, and reading the clock
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count, islice, product, starmap
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
COLUMNS = ("outside", "schedule", "arrays", "sampling", "complete", "events", "rest", "kernel")
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


@dataclass(frozen=True, slots=True)
class Case:
    """Whose cost is measured."""

    sampling: str
    policy: str
    kv_policy: str
    num_tenants: int
    num_waiting: int
    num_running: int

    @property
    def name(self) -> str:
        tenants = f"{self.num_tenants} tenant{'s' * (self.num_tenants > 1)}"
        waiting = f" {self.num_waiting} wait" if self.num_waiting else ""
        return (
            f"{self.num_running} {self.sampling} {self.policy} {self.kv_policy} {tenants}{waiting}"
        )

    def scheduler(self) -> Scheduler:
        config = SchedulerConfig(
            max_num_seqs=self.num_running,
            max_num_batched_tokens=1 << 20,
            max_model_len=8192,
            block_size=BLOCK,
            ordering=self.policy,
            kv_policy=self.kv_policy,
        )
        return Scheduler(config, num_blocks=self.num_running * (PROMPT // BLOCK + 40))

    def requests(self) -> Iterator[Request]:
        """Without end: those that run, that wait, and that come later."""
        rng = np.random.default_rng(1)
        params = SamplingParams(**SAMPLING[self.sampling], max_tokens=4000, ignore_eos=True)
        for index in count():
            yield Request(
                request_id=f"cmpl-{index:032x}-0",
                prompt_token_ids=tuple(rng.integers(5, VOCAB, PROMPT + index % BLOCK).tolist()),
                sampling=params,
                seed=index,
                tenant=f"tenant-{index % self.num_tenants}",
            )


class Rig:
    """One engine without a model."""

    def __init__(self, case: Case, address: str) -> None:
        self.watch = Stopwatch()
        ops = CpuOps()
        self.scheduler = case.scheduler()
        decoder: Any = StandIn(min(case.num_running, 64))
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
        self._requests = case.requests()
        first = islice(self._requests, case.num_running + case.num_waiting)
        self.commands: list[Command] = [Submit(request) for request in first]

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
        oldest = self.scheduler.running_sequences()[0].request_id
        self.commands += [Withdraw(oldest), Submit(next(self._requests))]
        return self.turn()


def drain(address: str) -> None:
    socket = zmq.Context.instance().socket(zmq.PULL)
    socket.set_hwm(0)
    socket.bind(address)
    while socket.recv() != b"end":
        pass


def line(name: str, turns: list[dict[str, float]]) -> str:
    medians = {part: statistics.median(turn[part] for turn in turns) for part in turns[0]}
    mean = statistics.mean(turn["outside"] for turn in turns)
    cells = "".join(f"{medians.get(part, 0):10.0f}" for part in COLUMNS)
    return f"{name:44}{mean:10.0f}{cells}"


def cases(args: argparse.Namespace) -> Iterator[Case]:
    return starmap(
        Case,
        product(
            args.sampling,
            args.scheduling_policy,
            args.kv_policy,
            args.tenants,
            args.waiting,
            args.running,
        ),
    )


def measure(case: Case, address: str, args: argparse.Namespace) -> str:
    rig = Rig(case, address)
    rarely_look_for_garbage()  # as the engine's process does
    rig.turn()  # now somebody runs, who may leave
    turn = rig.churn if args.churn else rig.turn
    turns = [turn() for _ in range(args.steps + 5)][5:]
    gc.unfreeze()  # so that the rig, which is one big cycle, is freed
    return line(case.name, turns)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--running", type=int, nargs="*", default=RUNNING)
    parser.add_argument("--sampling", nargs="*", choices=SAMPLING, default=["greedy", "top_p"])
    parser.add_argument("--scheduling-policy", nargs="*", default=["fcfs"])
    parser.add_argument("--kv-policy", nargs="*", default=["on-demand"])
    parser.add_argument("--tenants", type=int, nargs="*", default=[1])
    parser.add_argument("--waiting", type=int, nargs="*", default=[0])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--churn", action="store_true", help="one leaves and one comes every step")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    with tempfile.TemporaryDirectory() as folder:
        address = f"ipc://{folder}/events"
        reader = multiprocessing.get_context("spawn").Process(target=drain, args=(address,))
        reader.start()
        print(f"{'us per step':44}{'mean':>10}" + "".join(f"{name:>10}" for name in COLUMNS))
        for case in cases(args):
            print(measure(case, address, args), flush=True)
        end = zmq.Context.instance().socket(zmq.PUSH)
        end.connect(address)
        end.send(b"end")
        reader.join()


if __name__ == "__main__":
    main()
