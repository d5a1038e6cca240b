"""One engine in a process of its own: loads a model, measures cells, tells them on standard output.

    PYTHON -m benchmarks.peers.worker JSON

PYTHON is the peer's interpreter. What the engine itself prints goes to standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.peers.engine import Setup
from benchmarks.peers.workloads import Cell, measure

WARM_UP = ([1] * 16, 4)
PAUSE_S = 0.3  # threads of the engine may spin for a while


def share_of_cores(probe: str) -> float:
    """How much of two cores two threads have at the moment: see roofline.cpp."""
    time.sleep(PAUSE_S)
    done = subprocess.run([probe, "whole"], check=True, capture_output=True, text=True)
    return float(done.stdout)


def main() -> None:
    order = json.loads(sys.argv[1])
    told = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)

    def tell(**facts: Any) -> None:
        told.write(json.dumps(facts) + "\n")

    setup = Setup(**{**order["setup"], "folder": Path(order["setup"]["folder"])})
    started = time.perf_counter()
    engine = importlib.import_module(f"benchmarks.peers.{order['engine']}").open_engine(setup)
    try:
        engine.ready([WARM_UP], together=False)
        engine.generate([WARM_UP])
        load_s = time.perf_counter() - started
        tell(ready=True, load_s=load_s, version=engine.version, settings=engine.settings)
        for name in order["cells"]:
            tell(begins=name)
            before = share_of_cores(order["probe"])
            figures = measure(Cell(name), engine, order["model"], order["round"])
            whole = min(before, share_of_cores(order["probe"]))
            tell(ends=name, figures=figures, whole=whole)
    finally:
        engine.close()


if __name__ == "__main__":
    main()
