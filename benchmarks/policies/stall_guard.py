"""What prompts do to those who decode: the plain token budget, and --target-itl-ms.

    python -m benchmarks.policies.stall_guard            simulated: four machines, five seeds
    python -m benchmarks.policies.stall_guard --engine   the real engine, the default model

Scenes are those of real reports (shared prompts, cold, beside streams that decode):

    two-72k     one stream; two prompts of 72,000 tokens; budget 8,192
    one-200k    one stream of 700 tokens; a prompt of 200,000; budget 8,192
    9k-and-53k  eight streams; prompts of 9,100 and, later, 52,900; budget 8,192
    four-2k     one stream; four prompts of 2,200 at once; budget 8,192
    short-late  two streams; a prompt of 32,000, then one of 64; budget 2,048

A gap is the time between two tokens of a stream, in steps that have a prompt beside it: nothing
else is counted. On the real engine what the host takes is told apart from what is mispredicted:
steps that only decode, by the median of the seven before, and steps with a prompt, by what was
predicted for them. Seeds change lengths by a tenth, the moment of arrival and the jitter.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from headway.core.config import SchedulerConfig
from headway.core.events import Event, Retired
from headway.core.request import Request, SamplingParams
from headway.drive.ports import Command, Submit, Withdraw
from headway.drive.record import StepRecord
from headway.simulator.simulate import simulate
from headway.simulator.step_time.base import StepShape, StepTimeModel
from headway.simulator.step_time.hardware import hardware_named
from headway.simulator.step_time.models import shape_named
from headway.simulator.step_time.roofline import roofline
from headway.simulator.workload.base import ClientRequest, Segment

SEEDS = (1, 2, 3, 4, 5)
MS = 1_000_000

# ---- Machines ----


class Linear:
    """35 ms, and 0.43 ms a token: 8,192 of them take 3.5 s."""

    def step_ns(self, shape: StepShape) -> int:
        return 35 * MS + 430_000 * shape.num_tokens

    def terms_ns(self, shape: StepShape) -> Mapping[str, float]:
        return {}


class Deep:
    """A slow processor: what a token attends weighs as much as the token, from 3,000 on."""

    def step_ns(self, shape: StepShape) -> int:
        tokens = 9 * MS + 200_000 * shape.num_decode_tokens + 300_000 * shape.num_prefill_tokens
        return tokens + 60 * shape.decode_attended + 90 * shape.prefill_attended

    def terms_ns(self, shape: StepShape) -> Mapping[str, float]:
        return {}


class Jittery:
    """Another machine, 4 % uneven, and once in 500 steps held up for the time of ten."""

    def __init__(self, model: StepTimeModel, seed: int) -> None:
        self._model = model
        self._random = Random(seed)
        self.terms_ns = model.terms_ns

    def step_ns(self, shape: StepShape) -> int:
        ns = self._model.step_ns(shape) * self._random.lognormvariate(0, 0.04)
        return round(ns * (10 if self._random.random() < 0.002 else 1))


def h100() -> StepTimeModel:
    return roofline(shape_named("Qwen3-8B"), hardware_named("h100"))


MACHINES: dict[str, tuple[Callable[[int], StepTimeModel], float]] = {  # with a target, ms
    "linear": (lambda seed: Linear(), 100),
    "deep": (lambda seed: Deep(), 250),
    "h100": (lambda seed: h100(), 30),
    "jittery h100": (lambda seed: Jittery(h100(), seed), 30),
}

# ---- Scenes ----


@dataclass(frozen=True, slots=True)
class Scene:
    """Prompts of so many tokens, so many seconds after the streams began."""

    num_streams: int
    stream_tokens: int
    prompts: tuple[tuple[float, int], ...]
    budget: int = 8192

    def requests(self, seed: int) -> Iterator[ClientRequest]:
        rng = Random(seed)
        for number in range(self.num_streams):
            yield _request(f"stream-{number}", 0, 200, self.stream_tokens)
        start_s = 1 + rng.random()
        for number, (after_s, num_tokens) in enumerate(self.prompts):
            size = round(num_tokens * rng.uniform(0.9, 1.1)) if num_tokens > 100 else num_tokens
            at_ns = round((start_s + after_s) * 1e9)
            yield _request(f"prompt-{number}", at_ns, size, 16)


SCENES = {
    "two-72k": Scene(1, 3000, ((0, 72_000), (0.5, 72_000))),
    "one-200k": Scene(1, 3000, ((0, 200_000),)),
    "9k-and-53k": Scene(8, 1500, ((0, 9_100), (5, 52_900))),
    "four-2k": Scene(1, 500, ((0, 2_200),) * 4),
    "short-late": Scene(2, 1500, ((0, 32_000), (0.2, 64)), budget=2048),
}
SETTINGS: dict[str, Callable[[float], dict[str, Any]]] = {
    "plain budget": lambda target_ms: {},
    "shared": lambda target_ms: {"max_num_partial_prefills": 8},
    "guarded": lambda target_ms: {"target_itl_ms": target_ms},
}


def _request(name: str, at_ns: int, prompt: int, output: int) -> ClientRequest:
    number = sum(ord(letter) << (8 * place) for place, letter in enumerate(name[-3:]))
    return ClientRequest(
        request_id=name,
        arrival_ns=at_ns,
        prompt=(Segment(2 * number, prompt),),
        output=Segment(2 * number + 1, output),
    )


@dataclass(slots=True)
class Listed:
    """A workload of these."""

    requests: list[ClientRequest]

    def traffic(self) -> Listed:
        return self

    def arrivals(self) -> Iterator[ClientRequest]:
        return iter(sorted(self.requests, key=lambda request: request.arrival_ns))

    def follow_up(self, ended: ClientRequest, now_ns: int) -> tuple[ClientRequest, ...]:
        return ()


# ---- What came of it ----


@dataclass(slots=True)
class Watch:
    """StepListener: gaps of those who decode beside a prompt, and when prompts were done."""

    gaps_ms: list[float] = field(default_factory=list)
    first_token_ns: dict[int, int] = field(default_factory=dict)
    last_ns: dict[int, int] = field(default_factory=dict)
    prompts_ns: int = 0  # when the latest step with a prompt ended
    begun_ns: int = 0  # when the first began that had one beside a stream
    decodes_ns: list[int] = field(default_factory=list)  # spans of steps that only decode
    predicted: list[float] = field(default_factory=list)  # actual by predicted time

    def on_step(self, record: StepRecord) -> None:
        has_prompt = any(chunk.num_tokens > 1 for chunk in record.chunks)
        if has_prompt:
            self.prompts_ns = record.end_ns
            if self.last_ns and not self.begun_ns:
                self.begun_ns = record.start_ns
        span_ns = record.end_ns - record.start_ns
        if record.predicted_ns:
            self.predicted.append(span_ns / record.predicted_ns)
        elif record.chunks and not has_prompt:
            self.decodes_ns.append(span_ns)
        for sequence_id, _ in record.outputs:
            last_ns = self.last_ns.get(sequence_id)
            self.last_ns[sequence_id] = record.end_ns
            if last_ns is None:
                self.first_token_ns[sequence_id] = record.end_ns
            elif has_prompt:
                self.gaps_ms.append((record.end_ns - last_ns) / MS)

    def decodes(self) -> list[float]:
        """Each that only decodes, by the median of the seven before it."""
        spans = self.decodes_ns
        return [spans[at] / statistics.median(spans[at - 7 : at]) for at in range(7, len(spans))]


@dataclass(frozen=True, slots=True)
class Outcome:
    p99_ms: float
    most_ms: float
    prompts_s: float  # from the first prompt's arrival until the last was computed
    ttft_s: tuple[float, ...]  # of the prompts


def run(scene: Scene, machine: StepTimeModel, seed: int, **settings: Any) -> Outcome:
    requests = list(scene.requests(seed))
    watch = Watch()
    config = SchedulerConfig(max_num_batched_tokens=scene.budget, max_model_len=250_000, **settings)
    simulate(config, Listed(requests), machine, num_blocks=40_000, step_listeners=(watch,))
    return outcome(watch, requests, scene.num_streams)


def outcome(watch: Watch, requests: list[ClientRequest], num_streams: int) -> Outcome:
    gaps = sorted(watch.gaps_ms)
    arrivals = [request.arrival_ns for request in requests]
    ttft = [
        (watch.first_token_ns[number] - arrivals[number]) / 1e9
        for number in range(num_streams, len(requests))
    ]
    return Outcome(
        p99_ms=gaps[-(-99 * len(gaps) // 100) - 1],
        most_ms=gaps[-1],
        prompts_s=(watch.prompts_ns - arrivals[num_streams]) / 1e9,
        ttft_s=tuple(ttft),
    )


# ---- The real engine ----


class Sent:
    """Inbox: a stream, and after it so many steps later two long cold prompts and a short one."""

    def __init__(self, seconds: float, seed: int) -> None:
        rng = Random(seed)
        self._until_ns = time.monotonic_ns() + round(seconds * 1e9)
        self._num_taken = 0
        self._later = {0: [("stream", 64, 8000)], 460: [("long-0", 7000, 4), ("long-1", 7000, 4)]}
        self._later[475] = [("short", 64, 4)]
        self._tokens = {name: [rng.randrange(1000, 40_000) for _ in range(8192)] for name in "abc"}
        self.num_left = 4

    def take(self) -> list[Command]:
        due = self._later.pop(self._num_taken, [])
        self._num_taken += 1
        if time.monotonic_ns() > self._until_ns or self.num_left == 1:
            return [Withdraw(name) for name in ("stream", "long-0", "long-1", "short")]
        return [Submit(self._request(*one)) for one in due]

    def _request(self, name: str, prompt: int, output: int) -> Request:
        tokens = self._tokens["abc"[len(name) % 3]][:: -1 if name == "long-1" else 1][:prompt]
        return Request(
            request_id=name,
            prompt_token_ids=tuple(tokens),
            sampling=SamplingParams(max_tokens=min(output, 8192 - prompt), ignore_eos=True),
            arrival_ns=time.monotonic_ns(),
        )

    def wait(self, until_ns: int | None = None) -> bool:
        return False

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        self.num_left -= sum(isinstance(event, Retired) for event in events)


def run_engine(target_ms: float, seconds: float) -> None:
    """One stream, two prompts of 7,000, one of 64 after them: the budget of 2,048, and guarded."""
    from headway.engine.build import assemble
    from headway.engine.config import EngineConfig
    from headway.model.loader import load_model
    from headway.model.source import resolve
    from headway.ops.cpu.backend import CpuOps

    source, ops = resolve(None), CpuOps()
    model = load_model(source, ops, "bfloat16")
    print(f"the real engine, target {target_ms:g} ms: gaps of the stream beside prompts")
    for setting, knobs in SETTINGS.items():
        config = EngineConfig(
            max_num_batched_tokens=2048,
            max_num_seqs=16,
            num_gpu_blocks_override=1600,
            max_model_len=8192,
            **knobs(target_ms),
        )
        watch, sent = Watch(), Sent(seconds, seed=1)
        assemble(config, source, model, ops, sent, (sent,), (watch,)).loop.run()
        gaps = sorted(watch.gaps_ms)
        ends = [watch.first_token_ns.get(number, watch.prompts_ns) for number in range(1, 4)]
        begun_ns = watch.begun_ns
        print(
            f"{setting:14} p50 {gaps[len(gaps) // 2]:7.1f} ms, p99 "
            f"{gaps[-(-99 * len(gaps) // 100) - 1]:7.1f}, longest {gaps[-1]:7.1f} of {len(gaps)}; "
            f"first tokens after {', '.join(f'{(at - begun_ns) / 1e9:.2f}' for at in ends)} s",
            flush=True,
        )
        print(f"{'':14} only decodes: {_tail(watch.decodes())}", flush=True)
        if watch.predicted:
            print(f"{'':14} by predicted: {_tail(watch.predicted)}", flush=True)


def _tail(ratios: list[float]) -> str:
    quantiles = statistics.quantiles(ratios, n=100, method="inclusive")
    cells = (f"p{place} {quantiles[place - 1]:.2f}" for place in (50, 90, 95, 98, 99))
    return f"{', '.join(cells)} of {len(ratios)}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engine", action="store_true", help="the real engine")
    parser.add_argument("--target-itl-ms", type=float, default=60, help="with --engine")
    parser.add_argument("--seconds", type=float, default=40, help="with --engine: at most, a run")
    args = parser.parse_args()
    if args.engine:
        run_engine(args.target_itl_ms, args.seconds)
        return
    for machine, (make, target_ms) in MACHINES.items():
        print(f"\n{machine}, target {target_ms:g} ms")
        print(
            f"{'':26}{'p99 gap, ms':>16}{'/ target':>10}{'longest':>9}{'prompts, s':>18}  TTFT, s"
        )
        for name, scene in SCENES.items():
            for setting, knobs in SETTINGS.items():
                found = [run(scene, make(seed), seed, **knobs(target_ms)) for seed in SEEDS]
                print(f"{name:12}{setting:14}{_row(found, target_ms)}", flush=True)


def _row(found: list[Outcome], target_ms: float) -> str:
    p99 = [outcome.p99_ms for outcome in found]
    prompts = [outcome.prompts_s for outcome in found]
    ttft = [statistics.mean(times) for times in zip(*(o.ttft_s for o in found), strict=True)]
    return (
        f"{statistics.mean(p99):10.1f} ±{statistics.stdev(p99):5.1f}"
        f"{max(p99) / target_ms:9.2f}x{max(outcome.most_ms for outcome in found):9.1f}"
        f"{statistics.mean(prompts):11.2f} ±{statistics.stdev(prompts):5.2f}"
        f"  {', '.join(f'{seconds:.2f}' for seconds in ttft)}"
    )


if __name__ == "__main__":
    main()
