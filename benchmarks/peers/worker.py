"""One engine in a process of its own: loads a model, measures cells, tells them on standard output.

    PYTHON -m benchmarks.peers.worker JSON

PYTHON is the peer's interpreter. What the engine itself prints goes to standard error.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.peers.engine import Setup
from benchmarks.peers.workloads import Cell, measure

WARM_UP = ([1] * 16, 4)


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
            tell(ends=name, figures=measure(Cell(name), engine, order["model"], order["round"]))
    finally:
        engine.close()


if __name__ == "__main__":
    main()
