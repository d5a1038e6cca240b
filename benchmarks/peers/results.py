"""Results as JSON lines: one a figure, with what it takes to judge it."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NOISY_CORES = 0.15
LEAST_WHOLE = 0.8
Record = dict[str, Any]


def is_noisy(record: Record) -> bool:
    """Others, or the host, had so much of the machine meanwhile that the figure is not to quote.

    `whole`: a host that puts two virtual cores on one of its own takes half of them, and no time.
    """
    taken = record.get("others", 0) + record.get("steal", 0)
    return taken > NOISY_CORES or record.get("whole", 1) < LEAST_WHOLE


@dataclass(frozen=True)
class Place:
    """Where a figure belongs."""

    engine: str
    model: str
    weights: str
    cell: str

    @classmethod
    def of(cls, record: Record) -> Place:
        return cls(record["engine"], record["model"], record["weights"], record["cell"])


class Results:
    """The lines of one file, and those added to it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = path.read_text().splitlines() if path.exists() else []
        self.records: list[Record] = [json.loads(line) for line in lines]

    def add(self, record: Record) -> None:
        self.records.append(record)
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a") as file:
            file.write(json.dumps(record) + "\n")

    def figures(self, place: Place | None = None) -> Iterator[Record]:
        for record in self.records:
            if record["kind"] == "figure" and (place is None or Place.of(record) == place):
                yield record

    def of_kind(self, kind: str) -> list[Record]:
        return [record for record in self.records if record["kind"] == kind]

    def has(self, place: Place, turn: int, *, quiet: bool) -> bool:
        """Measured in this round, or failed in any: what failed once is not tried again.

        `quiet`: a figure that others disturbed does not count.
        """
        return any(
            "failed" in record or (record["round"] == turn and not (quiet and is_noisy(record)))
            for record in self.figures(place)
        )

    def wall_s(self, place: Place) -> float | None:
        """What a measurement of it takes, from those that were made."""
        walls = [record["wall_s"] for record in self.figures(place) if "wall_s" in record]
        return statistics.median(walls) if walls else None

    def load_s(self, engine: str, model: str, weights: str) -> float:
        loads = [
            record["load_s"]
            for record in self.of_kind("load")
            if (record["engine"], record["model"], record["weights"]) == (engine, model, weights)
        ]
        return statistics.median(loads) if loads else 0.0


def machine() -> Record:
    """What a reader must know of the machine."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    facts = dict(line.split(":", 1) for line in lines if ":" in line)
    facts = {name.strip(): value.strip() for name, value in facts.items()}
    wanted = (
        "avx2",
        "avx512f",
        "avx512_vnni",
        "avx512_bf16",
        "avx512_fp16",
        "amx_bf16",
        "amx_int8",
    )
    return {
        "processor": facts.get("model name", platform.machine()),
        "model": f"{facts.get('cpu family')}/{facts.get('model')}/{facts.get('stepping')}",
        "cores": len(os.sched_getaffinity(0)),
        "has": [name for name in wanted if name in facts.get("flags", "").split()],
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
    }


def commit() -> str:
    """With a + where files differ from it."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")
