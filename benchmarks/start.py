"""How long does a start take, and what memory do the two processes need at most?

    python -m benchmarks.start [--model NAME_OR_PATH] [--runs 5] [-- --quantization int8 …]

`headway serve` from the start of its process to the first good answer of /health, then to the first
token of a first request; the processor seconds of both processes, which a busy machine changes
less; the peak resident memory of the API process and of the engine process. What follows "--" goes
to the server. The files are in the page cache: one start before is not counted. Prints each start
and the medians.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.load.server import HOST, Server, engine_pids, free_port, processor_seconds, stop

_SRC = Path(__file__).parents[1] / "src"
_LONGEST_S = 120
_POLL_S = 0.005


class Start(NamedTuple):
    """Seconds since the process was started; processor seconds of both; MiB at most."""

    ready_s: float
    token_s: float
    cpu_s: float
    api_mib: float
    engine_mib: float


def measure(flags: Sequence[str]) -> Start:
    """One start from nothing to one token. Raises RuntimeError with the log where it fails."""
    with tempfile.TemporaryDirectory(prefix="headway-start-") as folder:
        log, port = Path(folder) / "server.log", free_port()
        words = [sys.executable, "-m", "headway", "serve", "--host", HOST, "--port", str(port)]
        environment = {**os.environ, "PYTHONPATH": str(_SRC)}
        began_s = time.perf_counter()
        with log.open("wb") as out:
            process = subprocess.Popen([*words, *flags], stdout=out, stderr=out, env=environment)
        server = Server(process, port, log)
        try:
            _until_healthy(server)
            ready_s = time.perf_counter() - began_s
            _first_token(server)
            token_s = time.perf_counter() - began_s
            engine = engine_pids(process.pid)[-1]
            cpu_s = processor_seconds(process.pid) + processor_seconds(engine)
            return Start(ready_s, token_s, cpu_s, _peak_mib(process.pid), _peak_mib(engine))
        finally:
            stop(server)


def _until_healthy(server: Server) -> None:
    deadline_s = time.monotonic() + _LONGEST_S
    while server.process.poll() is None and time.monotonic() < deadline_s:
        if server.health()[0] == 200:
            return
        time.sleep(_POLL_S)
    said = server.log.read_text(errors="replace")[-3000:]
    raise RuntimeError(f"the server did not start:\n{said}")


def _first_token(server: Server) -> None:
    body = json.dumps({"prompt": "Once upon a time", "max_tokens": 2, "stream": True})
    connection = http.client.HTTPConnection(HOST, server.port, timeout=_LONGEST_S)
    connection.request("POST", "/v1/completions", body, {"Content-Type": "application/json"})
    first = connection.getresponse().readline()
    if not first.startswith(b"data: {"):
        raise RuntimeError(f"no token came: {first[:300]!r}")
    connection.close()


def _peak_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    cut = words.index("--") if "--" in words else len(words)
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", help="the default model unless given")
    parser.add_argument("--runs", type=int, default=5)
    args = parser.parse_args(words[:cut])
    flags = ([] if args.model is None else [args.model]) + words[cut + 1 :]
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} processors; {flags}")
    measure(flags)
    print("    ready s    token s      CPU s    API MiB engine MiB")
    starts = []
    for _ in range(args.runs):
        starts.append(measure(flags))
        print("".join(f"{value:11.2f}" for value in starts[-1]), flush=True)
    medians = [statistics.median(values) for values in zip(*starts, strict=True)]
    print("".join(f"{value:11.2f}" for value in medians), " median")
    return 0


if __name__ == "__main__":
    sys.exit(main())
