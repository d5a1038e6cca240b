"""The server under load: the real one, with the default model, as two processes to watch."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

HOST = "127.0.0.1"
_SRC = Path(__file__).parents[2] / "src"
_START_S = 60


@dataclass(frozen=True)
class Server:
    """A running `headway serve`; `log` has its standard error and output."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def engine_pid(self) -> int:
        """Raises ProcessLookupError while there is no engine process."""
        pids = engine_pids(self.process.pid)
        if not pids:
            raise ProcessLookupError("the server has no engine process")
        return pids[-1]

    def get(self, path: str, timeout_s: float = 5.0) -> tuple[int, bytes]:
        """Status and body, whatever the status. Raises OSError where nobody answers in time."""
        try:
            with urllib.request.urlopen(self.url + path, timeout=timeout_s) as reply:
                return reply.status, reply.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()

    def health(self) -> tuple[int, bytes]:
        """As `get`, with status 0 where nobody answers."""
        try:
            return self.get("/health", 2.0)
        except OSError as error:
            return 0, str(error).encode()

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the samples called `name` with these labels. Raises KeyError if none is."""
        lines = self.get("/metrics")[1].decode().splitlines()
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        values = [
            float(line.rsplit(" ", 1)[1])
            for line in lines
            if line.split("{")[0].split(" ")[0] == name and all(word in line for word in wanted)
        ]
        if not values:
            raise KeyError(name)
        return sum(values)

    def model(self) -> str:
        return json.loads(self.get("/v1/models")[1])["data"][0]["id"]


@contextlib.contextmanager
def running(flags: Sequence[str] = (), *, module: str = "headway") -> Iterator[Server]:
    """Starts the server on a free port; ends it, by its pid, on the way out."""
    with tempfile.TemporaryDirectory(prefix="headway-load-") as folder:
        server = start(Path(folder), flags, module=module)
        try:
            yield server
        except BaseException:
            sys.stderr.write(server.log.read_text(errors="replace")[-3000:])
            raise
        finally:
            stop(server)


def start(folder: Path, flags: Sequence[str] = (), *, module: str = "headway") -> Server:
    """Returns when /health says 200. Raises RuntimeError with the log where it never does."""
    log = folder / "server.log"
    port = free_port()
    words = [sys.executable, "-m", module, "serve", "--host", HOST, "--port", str(port), *flags]
    path = os.pathsep.join([str(_SRC), str(_SRC.parent), os.environ.get("PYTHONPATH", "")])
    with log.open("wb") as out:
        process = subprocess.Popen(
            words, stdout=out, stderr=out, env={**os.environ, "PYTHONPATH": path}
        )
    server = Server(process, port, log)
    deadline = time.monotonic() + _START_S
    while process.poll() is None and time.monotonic() < deadline:
        if server.health()[0] == 200:
            return server
        time.sleep(0.1)
    stop(server)
    raise RuntimeError(f"the server did not start:\n{log.read_text(errors='replace')[-3000:]}")


def wait_for_health(process: subprocess.Popen[bytes], port: int, seconds: float) -> None:
    """Of any server. Raises RuntimeError where it ends, or says nothing in time."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and time.monotonic() < deadline:
        url = f"http://{HOST}:{port}/health"
        with contextlib.suppress(OSError), urllib.request.urlopen(url, timeout=2.0) as reply:
            if reply.status == 200:
                return
        time.sleep(0.1)
    raise RuntimeError(f"{process.args!r} did not start")


def stop(server: Server) -> None:
    engines = engine_pids(server.process.pid)
    server.process.terminate()
    try:
        server.process.wait(40)
    except subprocess.TimeoutExpired:
        server.process.kill()
        server.process.wait()
    for pid in engines:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return probe.getsockname()[1]


def engine_pids(parent: int) -> list[int]:
    """The engine processes among the children of `parent`, oldest first; none if it is gone."""
    found = []
    for task in Path(f"/proc/{parent}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            found += [int(pid) for pid in task.read_text().split()]
    return sorted(pid for pid in found if b"headway.engine" in _command_line(pid))


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def resident_bytes(pid: int) -> int:
    """Raises OSError when the process is gone."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def num_open_files(pid: int) -> int:
    """Raises OSError when the process is gone."""
    return len(os.listdir(f"/proc/{pid}/fd"))


def processor_seconds(pid: int) -> float:
    """User and system time so far. Raises OSError when the process is gone."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
