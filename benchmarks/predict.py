"""Does the simulator predict the engine on this machine, under loads that its model never saw?

    python benchmarks/predict.py [--rounds 3] [--requests 80] [--model NAME_OR_PATH]
        [-q FORMAT] [--speed 1.0] [--only LOAD]... [--folder FOLDER]
        [--step-time FILE] [--json FILE]

One load is recorded on the real engine and a step-time model fitted to its steps. Then other
loads (another rate, other lengths, another pool, another cap) are run on the engine and simulated,
with the same arrivals and lengths. All loads run by turns, in every round, since a machine that
others use is faster at one time than at another; the model is fitted to the first load of all
rounds, and what it predicts is held against the median of the rounds. Beside it stands how far the
rounds themselves lie apart. Leave the machine alone.

--speed multiplies the rates: an engine that is busy for half of the time and more shows what
waiting does. With a folder the recordings stay there, and a later call adds to them: the report is
over all of them, and --rounds 0 only reports. With --step-time it is a model of headway calibrate
that predicts.
"""

from __future__ import annotations

import argparse
import gc
import json
import statistics
import tempfile
import time
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from headway.core.request import Request, SamplingParams
from headway.drive.ports import Command, Submit
from headway.drive.recording import Recording
from headway.engine.build import assemble
from headway.engine.clock import RealClock
from headway.engine.config import EngineConfig
from headway.model.loader import LoadedModel, load_model
from headway.model.source import ModelSource, resolve
from headway.ops.cpu.backend import CpuOps
from headway.replay.files import load_recordings
from headway.replay.measured import replay_and_measure
from headway.replay.requests import recorded_config
from headway.simulator.result import Summary
from headway.simulator.simulate import simulate
from headway.simulator.step_time.base import StepTimeModel
from headway.simulator.step_time.files import read_model
from headway.simulator.step_time.fitted import FittedModel, fit
from headway.simulator.step_time.observations import observe
from headway.simulator.workload.base import ClientRequest, Workload
from headway.simulator.workload.spec import from_spec

SIZES = {"max_num_seqs": 32, "max_num_batched_tokens": 256, "max_model_len": 2048}
USUAL = {"prompt_tokens": "lognormal:160:0.8:8-1024", "output_tokens": "lognormal:96:0.7:8-384"}
FIGURES = {  # name: most that it may be off
    "output_tokens_per_second": 0.05,
    "itl mean": 0.05,
    "itl p99": 0.10,
    "ttft p50": 0.10,
    "ttft p99": 0.10,
}


@dataclass(frozen=True)
class Load:
    name: str
    spec: dict[str, object]
    settings: dict[str, int]

    def __hash__(self) -> int:
        return hash(self.name)


LOADS = (
    Load("fitted on", {"rate": 1.2, **USUAL}, {"num_gpu_blocks_override": 2048}),
    Load("another rate", {"rate": 1.7, **USUAL}, {"num_gpu_blocks_override": 2048}),
    Load(
        "other lengths",
        {
            "rate": 0.9,
            "prompt_tokens": "lognormal:500:0.6:32-1536",
            "output_tokens": "lognormal:40:0.7:4-256",
        },
        {"num_gpu_blocks_override": 2048},
    ),
    Load("another pool", {"rate": 1.2, **USUAL}, {"num_gpu_blocks_override": 90}),
    Load(
        "another cap",
        {"rate": 1.2, **USUAL},
        {"num_gpu_blocks_override": 2048, "max_num_seqs": 3},
    ),
)


class Clients:
    """Inbox: sends each request when it is due, on the real clock, from when it is first asked."""

    def __init__(self, clients: SequenceOf[ClientRequest], vocab_size: int) -> None:
        self._clock = RealClock()
        choose = Random(0).randrange
        self._left = [
            _request(client, tuple(choose(vocab_size) for _ in range(client.num_prompt_tokens)))
            for client in reversed(clients)
        ]
        self._start_ns: int | None = None

    def take(self) -> list[Command]:
        due: list[Command] = []
        now_ns = self._clock.now_ns()
        if self._start_ns is None:
            self._start_ns = now_ns
            self._left = [
                replace(request, arrival_ns=request.arrival_ns + now_ns) for request in self._left
            ]
        while self._left and self._left[-1].arrival_ns <= now_ns:
            due.append(Submit(self._left.pop()))
        return due

    def wait(self, until_ns: int | None = None) -> bool:
        if not self._left:
            return False
        left_ns = self._left[-1].arrival_ns - self._clock.now_ns()
        time.sleep(max(0, left_ns) / 1e9)
        return True


def _request(client: ClientRequest, prompt: tuple[int, ...]) -> Request:
    num_tokens = client.output.num_tokens
    return Request(
        request_id=client.request_id,
        prompt_token_ids=prompt,
        sampling=SamplingParams(temperature=0, max_tokens=num_tokens, ignore_eos=True),
        arrival_ns=client.arrival_ns,
    )


class Bench:
    """A model in memory, and engines round it."""

    def __init__(self, name: str | None, quantization: str | None, folder: Path) -> None:
        self._ops = CpuOps()
        self._source: ModelSource = resolve(name)
        self._quantization = quantization
        dtype = "bfloat16"
        self._model: LoadedModel = load_model(
            self._source, self._ops, dtype, quantization=quantization
        )
        self._folder = folder
        gc.collect()
        gc.freeze()  # as the engine's process does

    def run(self, load: Load, clients: SequenceOf[ClientRequest], name: str) -> None:
        """The load on the real engine, recorded in the folder."""
        path = self._folder / name
        settings = {**SIZES, **load.settings, "quantization": self._quantization}
        config = EngineConfig(**settings, record=str(path))  # type: ignore[arg-type]
        inbox = Clients(clients, self._model.config.vocab_size)
        engine = assemble(config, self._source, self._model, self._ops, inbox)
        engine.warm_up()
        # A block's first use waits for the system to find memory, once in a server's life.
        engine.kv_cache.keys[...] = 0
        engine.kv_cache.values[...] = 0
        engine.loop.run()
        assert engine.recording is not None
        engine.recording.close()


def clients_of(load: Load, num_requests: int, speed: float) -> list[ClientRequest]:
    return list(workload_of(load, num_requests, speed).traffic().arrivals())


def workload_of(load: Load, num_requests: int, speed: float) -> Workload:
    rate = speed * float(str(load.spec["rate"]))
    return from_spec({**load.spec, "rate": rate, "requests": num_requests, "seed": 3})


def figures(summary: Summary) -> dict[str, float]:
    """In tokens per second, and milliseconds."""
    found = {"output_tokens_per_second": summary.output_tokens_per_second}
    for name in FIGURES:
        if " " in name:
            which, point = name.split()
            found[name] = 1000 * getattr(getattr(summary, f"{which}_s"), point)
    found["preemptions"] = summary.num_preemptions
    return found


def predict(workload: Workload, recording: Recording, model: StepTimeModel) -> dict[str, float]:
    config = recorded_config(recording.header)
    result = simulate(config, workload, model, num_blocks=recording.header.num_blocks)
    return figures(result.summary())


def report(
    load: Load, speed: float, measured: list[dict[str, float]], predicted: dict[str, float]
) -> bool:
    """Print one load; whether everything is as near as it should be."""
    rate = speed * float(str(load.spec["rate"]))
    print(f"\n{load.name}: { ({**load.spec, 'rate': rate}) } {load.settings}")
    is_near = True
    for name, most in FIGURES.items():
        values = [row[name] for row in measured]
        median = statistics.median(values)
        off = predicted[name] / median - 1
        is_near &= abs(off) <= most
        noise = (max(values) - min(values)) / median
        print(
            f"  {name:26} measured {median:8.1f} (rounds {noise:5.1%} apart)  "
            f"predicted {predicted[name]:8.1f}  off {off:+6.1%}{'' if abs(off) <= most else '  *'}"
        )
    counts = [int(row["preemptions"]) for row in measured]
    print(f"  preemptions {counts}, predicted {int(predicted['preemptions'])}")
    return is_near


def record(args: argparse.Namespace, folder: Path) -> None:
    """`args.rounds` more of each load."""
    loads = [load for load in LOADS if not args.only or load.name in args.only]
    bench = Bench(args.model, args.quantization, folder)
    bench.run(LOADS[0], clients_of(LOADS[0], 4, args.speed), "warm-up.jsonl")
    (folder / "warm-up.jsonl").unlink()
    for number in range(1, args.rounds + 1):
        for load in loads:
            started = time.monotonic()
            name = f"{load.name} {len(recorded(folder, load)) + 1:03}.jsonl"
            bench.run(load, clients_of(load, args.requests, args.speed), name)
            print(f"round {number}: {load.name}, {time.monotonic() - started:.0f} s", flush=True)


def recorded(folder: Path, load: Load) -> list[Path]:
    return sorted(folder.glob(f"{load.name} *.jsonl"))


def compare(args: argparse.Namespace, folder: Path) -> None:
    recordings = {
        load: [each for path in recorded(folder, load) for each in load_recordings(path)]
        for load in LOADS
    }
    model = read_model(args.step_time) if args.step_time else fit(observe(recordings[LOADS[0]]))
    if isinstance(model, FittedModel):
        print(f"\nheld-out steps: {model.errors}")
    rows = {}
    for load, runs in recordings.items():
        if not runs:
            continue
        measured = [figures(replay_and_measure(run)[1].summary()) for run in runs]
        predicted = predict(workload_of(load, args.requests, args.speed), runs[0], model)
        report(load, args.speed, measured, predicted)
        rows[load.name] = {"measured": measured, "predicted": predicted}
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--model")
    parser.add_argument("-q", "--quantization")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--requests", type=int, default=80)
    parser.add_argument("--speed", type=float, default=1.0)
    parser.add_argument("--only", action="append", choices=[load.name for load in LOADS])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--step-time")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.folder or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if args.rounds:
            record(args, folder)
        compare(args, folder)


if __name__ == "__main__":
    main()
