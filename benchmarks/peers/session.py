"""One worker process: started, timed, ended when too slow; and what else the machine does."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.peers.results import ROOT

_TICKS = os.sysconf("SC_CLK_TCK")
_QUIET_CORES, _QUIET_WAIT_S = 0.3, 10
Told = dict[str, Any]


@dataclass(frozen=True)
class Limits:
    load_s: float
    cell_s: float


class TooSlowError(Exception):
    """The process went over its limit and was ended."""


def tree(root: int) -> list[int]:
    """`root` and all processes below it."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{entry}/stat").read_text().rsplit(") ", 1)[1].split()
                children.setdefault(int(fields[1]), []).append(int(entry))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found


def own_seconds(root: int) -> float:
    """Processor time of `root` and all below it, with their children that have ended."""
    ticks = 0
    for pid in tree(root):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(") ", 1)[1].split()
            ticks += sum(int(field) for field in fields[11:15])
    return ticks / _TICKS


def peak_mib(root: int) -> float:
    """Of all processes together; a page that several share counts for each."""
    kib = 0
    for pid in tree(root):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/status").read_text().splitlines():
                if line.startswith("VmHWM"):
                    kib += int(line.split()[1])
    return kib / 1024


class Noise:
    """Cores that others kept busy since the start, and those that the host took away."""

    def __init__(self, root: int) -> None:
        self._root = root
        self._at, self._before = time.monotonic(), self._now()

    def _now(self) -> tuple[float, float, float]:
        fields = Path("/proc/stat").read_text().splitlines()[0].split()[1:9]
        user, nice, system, _, _, irq, softirq, steal = (int(field) / _TICKS for field in fields)
        return user + nice + system + irq + softirq, own_seconds(self._root), steal

    def cores(self) -> tuple[float, float]:
        wall = time.monotonic() - self._at
        busy, own, steal = (b - a for a, b in zip(self._before, self._now(), strict=True))
        return round(max(0.0, busy - own) / wall, 3), round(steal / wall, 3)


def wait_for_quiet() -> None:
    """Until others leave the machine alone, or it has been long enough."""
    deadline = time.monotonic() + _QUIET_WAIT_S
    while time.monotonic() < deadline:
        noise = Noise(os.getpid())
        time.sleep(1)
        if noise.cores()[0] < _QUIET_CORES:
            return


class Worker:
    """Runs benchmarks.peers.worker; `told()` gives what it says, with what was seen meanwhile."""

    def __init__(self, python: str, order: Mapping[str, Any], log: Path, limits: Limits) -> None:
        self._limits = limits
        path = os.pathsep.join([str(ROOT), str(ROOT / "src")])
        with log.open("ab") as out:
            self._process = subprocess.Popen(
                [python, "-m", "benchmarks.peers.worker", json.dumps(order)],
                stdout=subprocess.PIPE,
                stderr=out,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": path},
                start_new_session=True,
            )

    def told(self) -> Iterator[Told]:
        """Ends with the process. Raises TooSlowError; RuntimeError where it failed."""
        self._deadline = time.monotonic() + self._limits.load_s
        noise, started = Noise(self._process.pid), time.monotonic()
        for line in self._lines():
            told = json.loads(line)
            if "begins" not in told:
                others, stolen = noise.cores()
                told |= {"others": others, "steal": stolen}
                told |= {"wall_s": round(time.monotonic() - started, 2)}
                told |= {"peak_mib": round(peak_mib(self._process.pid))}
            noise, started = Noise(self._process.pid), time.monotonic()
            self._deadline = started + self._limits.cell_s
            yield told
        if self._process.wait():
            raise RuntimeError(f"exit status {self._process.returncode}")

    def _lines(self) -> Iterator[bytes]:
        assert self._process.stdout is not None
        out, rest = self._process.stdout.fileno(), b""
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            while True:
                if not selector.select(max(0.0, self._deadline - time.monotonic())):
                    raise TooSlowError
                piece = os.read(out, 1 << 16)
                if not piece:
                    return
                *lines, rest = (rest + piece).split(b"\n")
                yield from lines

    def end(self) -> None:
        """The worker and all that it started: they are a session of their own."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


def last_line(log: Path) -> str:
    """Of what the worker wrote about its end."""
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1].strip()[:300] if lines else "it said nothing"


def run(
    python: str, order: Mapping[str, Any], names: Sequence[str], log: Path, limits: Limits
) -> Iterator[Told]:
    """What the worker told: `ready`, then for each cell `ends` with figures, or `failed` with why.

    A worker that dies takes the cell with it that was begun, or, before it was ready, all of them.
    """
    worker, lost, limit = Worker(python, order, log, limits), list(names), limits.load_s
    try:
        for told in worker.told():
            limit = limits.cell_s
            lost = [told["begins"]] if "begins" in told else []
            if not lost:
                yield told
    except TooSlowError:
        yield from ({"ends": name, "failed": f"took more than {limit:.0f} s"} for name in lost)
    except RuntimeError:
        yield from ({"ends": name, "failed": last_line(log)} for name in lost)
    finally:
        worker.end()
