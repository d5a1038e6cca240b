"""`python -m benchmarks.load.timed serve FLAGS`: headway serve, whose engine notes when steps end.

At its end the engine process writes one line per token to the file $HEADWAY_STEP_TIMES: request id
and index of the sequence, and CLOCK_MONOTONIC in nanoseconds when the step's tokens were known.
"""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from headway.core.step import Step, StepResult
from headway.engine.config import EngineConfig


def start_timed_engine(
    config: EngineConfig, to_engine: str, from_engine: str, **log_options: bool
) -> subprocess.Popen[bytes]:
    words = [sys.executable, "-m", "benchmarks.load.timed"]
    words += ["--to-engine", to_engine, "--from-engine", from_engine]
    words += ["--parent-pid", str(os.getpid())]
    words += ["--config", msgspec.json.encode(config).decode()]
    return subprocess.Popen(words, process_group=0, stdin=subprocess.DEVNULL)


def run_timed_engine() -> int:
    from headway.engine import process
    from headway.engine.executor import ModelExecutor

    ended: list[tuple[Step, int]] = []
    run = ModelExecutor.run

    def timed(self: ModelExecutor, step: Step) -> StepResult:
        result = run(self, step)
        ended.append((step, time.monotonic_ns()))
        return result

    ModelExecutor.run = timed  # type: ignore[method-assign]
    atexit.register(_write, ended, Path(os.environ["HEADWAY_STEP_TIMES"]))
    return process.main()


def _write(ended: list[tuple[Step, int]], path: Path) -> None:
    with path.open("w") as file:
        for step, end_ns in ended:
            for chunk in [chunk for chunk in step.chunks if chunk.samples]:
                request_id = chunk.sequence.request.request_id
                file.write(f"{request_id} {chunk.sequence.index} {end_ns}\n")


def main() -> int:
    if sys.argv[1] != "serve":
        return run_timed_engine()
    from headway.cli import serve

    serve.start_engine_process = start_timed_engine
    return serve.main(sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
