"""What prompts do to those who decode: the plain token budget, and --target-itl-ms.

    python -m benchmarks.policies.stall_guard                   simulated: four machines, five seeds
    python -m benchmarks.policies.stall_guard --engine two-7k   the real engine, default model

Scenes are those of real reports (shared prompts, cold, beside streams that decode):

    two-72k     one stream; two prompts of 72,000 tokens; budget 8,192
    one-200k    one stream of 700 tokens; a prompt of 200,000; budget 8,192
    9k-and-53k  eight streams; prompts of 9,100 and, later, 52,900; budget 8,192
    four-2k     one stream; four prompts of 2,200 at once; budget 8,192
    short-late  two streams; a prompt of 32,000, then one of 64; budget 2,048

A gap is the time between two tokens of a stream, in steps that have a prompt beside it: nothing
else is counted. Seeds change lengths by a tenth, the moment of arrival and the jitter. The scenes
of the real engine are in `guard_engine.py`.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from benchmarks.policies.gaps import MS, Watch, percentile

from headway.core.config import SchedulerConfig
from headway.simulator.simulate import simulate
from headway.simulator.step_time.base import StepShape, StepTimeModel
from headway.simulator.step_time.hardware import hardware_named
from headway.simulator.step_time.models import shape_named
from headway.simulator.step_time.roofline import roofline
from headway.simulator.workload.base import ClientRequest, Segment

SEEDS = (1, 2, 3, 4, 5)

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
    gaps = watch.gaps_ms
    arrivals = [request.arrival_ns for request in requests]
    ttft = [
        (watch.first_token_ns[number] - arrivals[number]) / 1e9
        for number in range(num_streams, len(requests))
    ]
    return Outcome(
        p99_ms=percentile(gaps, 990),
        most_ms=max(gaps),
        prompts_s=(watch.prompts_ns - arrivals[num_streams]) / 1e9,
        ttft_s=tuple(ttft),
    )


# ---- The real engine ----


def run_engine(
    scene: str, settings: Sequence[str], target_ms: float, seconds: float, rounds: int
) -> None:
    from benchmarks.policies import guard_engine

    bench = guard_engine.Bench()
    for setting in tuple(settings) * rounds:
        knobs = SETTINGS[setting](target_ms)
        watch, clients = bench.run(guard_engine.SCENES[scene], seconds, knobs)
        print(f"{scene}, {setting}, target {target_ms:g} ms")
        print(guard_engine.report(watch, clients, target_ms), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--engine", metavar="SCENE", help="two-7k, eight-2k or many-256")
    parser.add_argument("--settings", nargs="+", default=list(SETTINGS), choices=list(SETTINGS))
    parser.add_argument("--target-itl-ms", type=float, default=60, help="with --engine")
    parser.add_argument("--seconds", type=float, default=60, help="with --engine: at most, a run")
    parser.add_argument(
        "--rounds", type=int, default=1, help="with --engine: runs of each, in turn"
    )
    args = parser.parse_args()
    if args.engine:
        run_engine(args.engine, args.settings, args.target_itl_ms, args.seconds, args.rounds)
        return
    for machine, (make, target_ms) in MACHINES.items():
        print(f"\n{machine}, target {target_ms:g} ms")
        print(
            f"{'':26}{'p99 gap, ms':>16}{'/ target':>10}{'longest':>9}{'prompts, s':>18}  TTFT, s"
        )
        for name, scene in SCENES.items():
            for setting in args.settings:
                knobs = SETTINGS[setting]
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
