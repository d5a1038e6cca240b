"""Does the scheduler decide a recording of the real engine again as it did? Every step of it?

    python benchmarks/same_decisions.py [--model NAME_OR_PATH] [--requests 300] [--seed 0]

For each combination of admission, unit, prefill placement and caching: a load on the real engine
is recorded, and the recording replayed. Requests arrive at random, so many to a step, and so
do withdrawals: the load is the same on every machine. Prompts share beginnings, conversations go
on, clients leave, stop strings are found, time limits and deadlines pass, tenants have their caps,
and the pool is too small for all.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from pathlib import Path
from random import Random

from headway.core.events import Advanced, Event, Queued, Retired
from headway.core.request import FinishReason, Request, SamplingParams, TimeLimits
from headway.drive.ports import Command, ResetPrefixCache, Submit, Withdraw
from headway.drive.record import StepRecord
from headway.engine.build import assemble
from headway.engine.clock import RealClock
from headway.engine.config import EngineConfig
from headway.model.loader import LoadedModel, load_model
from headway.model.source import ModelSource, resolve
from headway.ops.cpu.backend import CpuOps
from headway.ops.interface import Ops
from headway.replay.exact import replay_exactly
from headway.replay.files import load_recordings

SIZES = {
    "num_gpu_blocks_override": 32,
    "max_num_seqs": 16,
    "max_num_batched_tokens": 96,
    "max_model_len": 256,
}


ORDERINGS = ("fcfs", "priority", "sjf", "edf", "fair")
VICTIMS = ("auto", "least-lost")


def combinations() -> Iterator[dict[str, object]]:
    """Every admission, unit, prefill placement and caching; the other policies take turns."""
    for number, (kv_policy, unit, prefill, caching) in enumerate(
        itertools.product(
            ("on-demand", "reserve", "predict"),
            ("step", "request"),
            ("mixed", "first"),
            (True, False),
        )
    ):
        can_guard = unit == "step" and prefill == "mixed"
        yield {
            "kv_policy": kv_policy,
            "batching_unit": unit,
            "prefill_placement": prefill,
            "enable_prefix_caching": caching,
            "scheduling_policy": ORDERINGS[(number + number // 5) % len(ORDERINGS)],
            "preemption_victim": VICTIMS[number // 2 % 2],
            "target_itl_ms": 25.0 if can_guard and not caching else 0.0,
            "skip_blocked_ms": 100 if caching else 0,
            "max_tenant_seqs": 12 if number % 3 == 0 else 0,
        }


class Load:
    """Inbox and Listener: requests and withdrawals, at random but the same for the same seed."""

    def __init__(self, num_requests: int, vocab_size: int, seed: int, per_step: float) -> None:
        self._random = Random(seed)
        self._num_left = num_requests
        self._num_sent = 0
        self._vocab_size = vocab_size
        self._per_step = per_step
        self._prefixes = [self._tokens(48) for _ in range(4)]
        self._stops = frozenset(self._random.sample(range(vocab_size), vocab_size // 40))
        self._clock = RealClock()
        self._step = 0.0
        self._next_arrival = 0.0
        self._later: list[tuple[float, Command]] = []
        self._texts: dict[int, list[int]] = {}
        self._prompts: dict[str, tuple[int, ...]] = {}

    def take(self) -> list[Command]:
        self._step += 1
        commands: list[Command] = []
        while self._num_left and self._next_arrival <= self._step:
            self._num_left -= 1
            self._next_arrival += self._random.expovariate(self._per_step)
            commands.append(self._submit(self._new_prompt()))
        commands += [command for at, command in self._later if at <= self._step]
        self._later = [(at, command) for at, command in self._later if at > self._step]
        return commands

    def wait(self, until_ns: int | None = None) -> bool:
        times = [at for at, _ in self._later] + [self._next_arrival] * bool(self._num_left)
        if not times:
            return False
        self._step = max(self._step, min(times))
        return True

    def on_events(self, events: SequenceOf[Event], now_ns: int) -> None:
        for event in events:
            match event:
                case Queued(sequence_id, request_id):
                    self._texts[sequence_id] = list(self._prompts[request_id])
                case Advanced(sequence_id, _, token_ids):
                    self._texts[sequence_id] += token_ids
                case Retired(sequence_id):
                    self._go_on(self._texts.pop(sequence_id))

    def _go_on(self, text: list[int]) -> None:
        if len(text) < 150 and self._random.random() < 0.15:
            submit = self._submit((*text, *self._tokens(self._random.randrange(1, 20))))
            self._later.append((self._step + self._random.randrange(20), submit))

    def _tokens(self, count: int) -> tuple[int, ...]:
        return tuple(self._random.randrange(self._vocab_size) for _ in range(count))

    def _new_prompt(self) -> tuple[int, ...]:
        prefix = self._random.choice(self._prefixes)[: self._random.choice((0, 20, 48))]
        return prefix + self._tokens(self._random.randrange(1, 60))

    def _submit(self, prompt: tuple[int, ...]) -> Submit:
        chance, number = self._random.random, self._num_sent
        self._num_sent += 1
        name = f"r{number}"
        self._prompts[name] = prompt
        if chance() < 0.2:
            reason = FinishReason.STOP if chance() < 0.5 else FinishReason.ABORT
            withdraw = Withdraw(name, None if chance() < 0.7 else 0, reason)
            self._later.append((self._step + self._random.randrange(40), withdraw))
        if chance() < 0.02:
            self._later.append((self._step + 1, ResetPrefixCache()))
        return Submit(
            Request(
                request_id=name,
                prompt_token_ids=prompt,
                sampling=SamplingParams(
                    temperature=1.0,
                    max_tokens=self._random.randrange(1, 40),
                    n=2 if chance() < 0.1 else 1,
                    prompt_logprobs=0 if chance() < 0.05 else None,
                ),
                stop_token_ids=self._stops,
                seed=number,
                arrival_ns=self._clock.now_ns(),
                priority=self._random.randrange(3),
                tenant="quiet" if number % 5 == 0 else "flood",
                limits=TimeLimits(
                    max_run_ns=200_000_000 if chance() < 0.05 else None,
                    deadline_ns=self._clock.now_ns() + 2 * 10**9 if number % 3 == 0 else None,
                ),
            )
        )


class Preemptions:
    """How often each sequence was preempted: a StepListener."""

    def __init__(self) -> None:
        self.of_sequence: Counter[int] = Counter()
        self.num_cached_tokens = 0

    def on_step(self, record: StepRecord) -> None:
        self.of_sequence.update(row.sequence_id for row in record.preempted)
        self.num_cached_tokens += sum(row.num_cached_tokens for row in record.admitted)


@dataclass(frozen=True, slots=True)
class Outcome:
    num_steps: int
    num_preemptions: int
    most_preemptions: int  # of one sequence
    num_cached_tokens: int
    engine_s: float
    replay_s: float
    difference: str | None


def run_and_replay(
    source: ModelSource,
    model: LoadedModel,
    ops: Ops,
    settings: Mapping[str, object],
    folder: Path,
    *,
    num_requests: int,
    seed: int = 0,
    per_step: float = 0.8,
) -> Outcome:
    """Record a load on the engine, then let the scheduler decide the recording."""
    path = folder / f"{'-'.join(map(str, settings.values()))}.jsonl.zst"
    load = Load(num_requests, model.config.vocab_size, seed, per_step)
    config = EngineConfig(**{**SIZES, **settings}, record=str(path))  # type: ignore[arg-type]
    engine = assemble(config, source, model, ops, load, (load,))
    started = time.monotonic()
    engine.loop.run()
    engine_s = time.monotonic() - started
    assert engine.recording is not None
    engine.recording.close()
    started = time.monotonic()
    [recording] = load_recordings(path)
    seen = Preemptions()
    result = replay_exactly(recording, step_listeners=[seen])
    difference = result.difference
    if difference is None and result.num_steps != engine.scheduler.num_steps:
        difference = f"{result.num_steps} of {engine.scheduler.num_steps} steps are recorded"
    return Outcome(
        num_steps=result.num_steps,
        num_preemptions=seen.of_sequence.total(),
        most_preemptions=max(seen.of_sequence.values(), default=0),
        num_cached_tokens=seen.num_cached_tokens,
        engine_s=engine_s,
        replay_s=time.monotonic() - started,
        difference=difference,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model")
    parser.add_argument("--requests", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    source, ops = resolve(args.model), CpuOps()
    model = load_model(source, ops, "bfloat16")
    num_different = 0
    with tempfile.TemporaryDirectory() as folder:
        for settings in combinations():
            outcome = run_and_replay(
                source,
                model,
                ops,
                settings,
                Path(folder),
                num_requests=args.requests,
                seed=args.seed,
            )
            num_different += outcome.difference is not None
            print(row(settings, outcome), flush=True)
    raise SystemExit(f"{num_different} combinations decided otherwise" if num_different else 0)


def row(settings: Mapping[str, object], outcome: Outcome) -> str:
    caching = "cached" if settings["enable_prefix_caching"] else "uncached"
    names = [str(v) for k, v in settings.items() if k != "enable_prefix_caching"]
    return (
        f"{' '.join([*names, caching]):44} {outcome.num_steps:5} steps, "
        f"{outcome.num_preemptions:4} preemptions (most of one: {outcome.most_preemptions}), "
        f"{outcome.num_cached_tokens:6} tokens from the cache, {outcome.engine_s:5.1f} s, "
        f"replayed in {outcome.replay_s:4.2f} s: {outcome.difference or 'no difference'}"
    )


if __name__ == "__main__":
    main()
