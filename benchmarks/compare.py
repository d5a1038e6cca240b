"""How fast is Headway beside the engines that are installed here?

    python -m benchmarks.compare MODELS_FOLDER [--which w1,w2,w3] [--models smollm2,qwen3-0.6b]
        [--classes bf16,int8,int4] [--rounds 5] [--openvino PYTHON] [--vllm PYTHON]
        [--transformers PYTHON] [--llamacpp LLAMA_SERVER] [--results FILE]

MODELS_FOLDER is what benchmarks/models.py made. A peer takes part when its interpreter (llama.cpp:
its server) is named, or in the environment as PEER_OPENVINO, PEER_VLLM, PEER_TRANSFORMERS and
PEER_LLAMACPP. Engines take turns, each in a process of its own, in as many rounds; the machine's
ceilings are measured at the start of each. A figure is written to the results file when it is
there, and a rerun leaves out what it holds (--repeat-noisy: unless others used the machine
meanwhile); a cell that fails or takes too long is not tried again.
`python -m benchmarks.report` prints the tables; docs/benchmarks.md says what they mean.
"""

from __future__ import annotations

import argparse
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.engine import CLASSES
from benchmarks.peers.limits import Shape
from benchmarks.peers.results import ROOT, Place, Results, commit, machine
from benchmarks.peers.session import Limits, run, wait_for_quiet
from benchmarks.peers.workloads import BATCHES, CONTEXTS, MODELS, Cell, cells, kv_tokens

from benchmarks import report, roofline

CLASSES_OF = {
    "headway": CLASSES,
    "headway_kv8": ("int8", "int4"),  # keys and values in 8 bits, too
    "openvino": CLASSES,
    "llamacpp": CLASSES,
    "vllm": ("bf16", "int8"),
    "transformers": ("bf16",),
}
OURS = ("headway", "headway_kv8")
PEERS = tuple(name for name in CLASSES_OF if name not in OURS)
MAX_LEN = 4096
RESULTS = ROOT / "benchmarks" / "results" / "compare.jsonl"


@dataclass(frozen=True)
class Peer:
    """Installed here: the interpreter to run it in, and its own program if it has one."""

    python: str
    program: str | None = None


@dataclass(frozen=True)
class Visit:
    """What one process measures."""

    round: int
    engine: str
    model: str
    weights: str
    cells: list[Cell]

    def place(self, cell: Cell) -> Place:
        return Place(self.engine, self.model, self.weights, cell.name)


def installed(arguments: argparse.Namespace) -> dict[str, Peer]:
    """Headway and the peers that are named."""
    found = {name: Peer(sys.executable) for name in OURS}
    for name in PEERS:
        path = getattr(arguments, name) or os.environ.get(f"PEER_{name.upper()}")
        if path and name == "llamacpp":
            found[name] = Peer(sys.executable, path)
        elif path:
            found[name] = Peer(path)
    wanted = arguments.engines.split(",") if arguments.engines else list(found)
    missing = [name for name in wanted if name not in found]
    if missing:
        sys.exit(f"not known or not named: {', '.join(missing)}")
    return {name: found[name] for name in wanted}


def plan(arguments: argparse.Namespace, peers: Sequence[str], results: Results) -> Iterator[Visit]:
    """What is left to do, engine by engine within each round."""
    wanted = cells(arguments.which.split(","), arguments.batches, arguments.contexts)
    for turn in range(1, arguments.rounds + 1):
        for model in arguments.models.split(","):
            per_token = Shape.read(arguments.folder / model).kv_bytes_per_token
            most = int(arguments.max_kv_gib * 2**30) // per_token
            fitting = [cell for cell in wanted if kv_tokens(cell, model) <= most]
            for weights in arguments.classes.split(","):
                for engine in peers:
                    if weights not in CLASSES_OF[engine]:
                        continue
                    visit = Visit(turn, engine, model, weights, fitting)
                    left = [
                        c
                        for c in fitting
                        if not results.has(visit.place(c), turn, quiet=arguments.repeat_noisy)
                    ]
                    if left:
                        yield Visit(turn, engine, model, weights, left)


class Comparison:
    def __init__(self, arguments: argparse.Namespace, peers: dict[str, Peer]) -> None:
        self._folder: Path = arguments.folder
        self._limits = Limits(arguments.load_limit, arguments.cell_limit)
        self._log: Path = arguments.log
        self._peers = peers
        self._results = Results(arguments.results)
        self._arguments = arguments
        self._origin = {"at": time.strftime("%Y-%m-%dT%H:%M:%S"), "commit": commit()}

    def estimate(self) -> None:
        """Prints how long what is left will take, from what was measured before."""
        seconds, unknown = 0.0, 0
        visits = list(plan(self._arguments, list(self._peers), self._results))
        for visit in visits:
            seconds += self._results.load_s(visit.engine, visit.model, visit.weights)
            for cell in visit.cells:
                wall = self._results.wall_s(visit.place(cell))
                seconds += wall or 0.0
                unknown += wall is None
        count = sum(len(visit.cells) for visit in visits)
        print(f"{count} figures in {len(visits)} processes: {seconds / 60:.0f} minutes", end="")
        print(f", and {unknown} of them were never measured" if unknown else "", flush=True)

    def run(self) -> None:
        command = shlex.join(["python", "-m", "benchmarks.compare", *sys.argv[1:]])
        self._results.add({"kind": "run", **self._origin, "command": command, **machine()})
        measured: set[int] = set()
        with roofline.built() as probe:
            for visit in plan(self._arguments, list(self._peers), self._results):
                if visit.round not in measured:
                    measured.add(visit.round)
                    self._measure_ceilings(visit.round)
                self._visit(visit, probe)

    def _measure_ceilings(self, turn: int) -> None:
        wait_for_quiet()
        found = [(name, n, value) for (name, n), value in roofline.measure().items()]
        self._results.add({"kind": "ceilings", **self._origin, "round": turn, "measured": found})

    def _visit(self, visit: Visit, probe: str) -> None:
        """Starts the engine again for the rest where one cell ends it."""
        left = [cell.name for cell in visit.cells]
        while left:
            wait_for_quiet()
            peer = self._peers[visit.engine]
            order = self._order(visit, left) | {"probe": probe}
            for told in run(peer.python, order, list(left), self._log, self._limits):
                name = told.pop("ends", None)
                where = {k: v for k, v in asdict(visit).items() if k != "cells"}
                if name is None:
                    self._results.add({"kind": "load", **self._origin, **where, **told})
                    continue
                left.remove(name)
                self._results.add({"kind": "figure", **self._origin, **where, "cell": name, **told})
                outcome = told.get("failed") or told["figures"]
                print(visit.round, *list(where.values())[1:], name, outcome, flush=True)

    def _order(self, visit: Visit, names: Sequence[str]) -> dict[str, Any]:
        shape = Shape.read(self._folder / visit.model)
        setup = {
            "folder": str(self._folder / visit.model),
            "weights": visit.weights,
            "num_threads": len(os.sched_getaffinity(0)),
            "kv_tokens": max(kv_tokens(Cell(name), visit.model) for name in names),
            "kv_bytes_per_token": shape.kv_bytes_per_token,
            "max_len": MAX_LEN,
            "program": self._peers[visit.engine].program,
        }
        return {
            "engine": visit.engine,
            "model": visit.model,
            "round": visit.round,
            "cells": list(names),
            "setup": setup,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--which", default="w1,w2,w3")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--classes", default=",".join(CLASSES))
    parser.add_argument("--engines", help="of those named; all of them if left out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--contexts", type=int, nargs="+", default=CONTEXTS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--log", type=Path, default=Path("build/compare.log"))
    parser.add_argument("--load-limit", type=float, default=400, help="seconds")
    parser.add_argument("--cell-limit", type=float, default=240, help="seconds")
    parser.add_argument("--max-kv-gib", type=float, default=6, help="larger cells are left out")
    parser.add_argument("--repeat-noisy", action="store_true", help="what others disturbed")
    parser.add_argument("--estimate", action="store_true", help="only say how long it will take")
    for name in PEERS:
        parser.add_argument(f"--{name}")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    arguments.log.parent.mkdir(parents=True, exist_ok=True)
    comparison = Comparison(arguments, installed(arguments))
    comparison.estimate()
    if not arguments.estimate:
        comparison.run()
        report.show(arguments.folder, Results(arguments.results))


if __name__ == "__main__":
    main()
