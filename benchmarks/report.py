"""Prints the tables of a comparison, in markdown: medians, spread, shares of the limit.

    python -m benchmarks.report MODELS_FOLDER [--results FILE]

The limit is that of this machine (peers/limits.py), with the medians of the ceilings that were
measured in the same rounds. Figures that others or the host disturbed are left out where there are
undisturbed ones; where there are none they stand with a ~. The last line of a table says how
Headway stands to the best peer.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.peers.engine import CLASSES
from benchmarks.peers.limits import Ceilings, Roofline, Shape, ceilings
from benchmarks.peers.results import LEAST_WHOLE, NOISY_CORES, Place, Results, is_noisy
from benchmarks.peers.workloads import BATCHES, CONTEXTS, MODELS, PROMPT_LENGTHS, Cell

RESULTS = Path(__file__).parent / "results" / "compare.jsonl"
OURS, OURS_TOO = "headway", "headway_kv8"


@dataclass(frozen=True)
class Table:
    """Some cells of one model with weights of one class, an engine a line."""

    results: Results
    roofline: Roofline
    model: str
    weights: str

    def engines(self, cells: Sequence[Cell]) -> list[str]:
        names = {
            record["engine"]
            for record in self.results.figures()
            if (record["model"], record["weights"]) == (self.model, self.weights)
            and record["cell"] in [cell.name for cell in cells]
        }
        return sorted(names, key=lambda name: (name not in (OURS, OURS_TOO), name))

    def measured(self, engine: str, cell: Cell) -> tuple[list[float], bool]:
        """The undisturbed figures, or, where there are none, the others and True."""
        name, _ = self.roofline.figure(cell, self.model)
        place = Place(engine, self.model, self.weights, cell.name)
        records = [record for record in self.results.figures(place) if "figures" in record]
        quiet = [record for record in records if not is_noisy(record)]
        return [record["figures"][name] for record in quiet or records], not quiet

    def values(self, engine: str, cell: Cell) -> list[float]:
        return self.measured(engine, cell)[0]

    def entry(self, engine: str, cell: Cell) -> str:
        """Median, spread and share of the limit; why there is none, if there is none."""
        values, is_disturbed = self.measured(engine, cell)
        if not values:
            place = Place(engine, self.model, self.weights, cell.name)
            return "failed" if any(self.results.figures(place)) else "-"
        middle = statistics.median(values)
        spread = f" [{number(min(values))} .. {number(max(values))}]" if len(values) > 1 else ""
        mark = "~" if is_disturbed else ""
        return f"{mark}{number(middle)}{spread} ({self.share(cell, middle):.0%})"

    def share(self, cell: Cell, value: float) -> float:
        _, limit = self.roofline.figure(cell, self.model)
        return value / limit if cell.name == "w1" else limit / value

    def ratio(self, engines: Sequence[str], cell: Cell) -> str:
        """How many times as fast Headway is as the best of the others."""
        ours = self.values(OURS, cell)
        peers = [engine for engine in engines if engine not in (OURS, OURS_TOO)]
        others = [v for engine in peers if (v := self.values(engine, cell))]
        if not ours or not others:
            return "-"
        mine, theirs = statistics.median(ours), [statistics.median(v) for v in others]
        times = mine / max(theirs) if cell.name == "w1" else min(theirs) / mine
        return f"{times:.2f}x"

    def lines(self, title: str, cells: Sequence[Cell], heads: Sequence[str]) -> Iterator[str]:
        engines = self.engines(cells)
        if not engines:
            return
        yield f"{title}, {self.weights} weights:\n"
        yield line(["engine", *heads])
        yield line(["---"] * (len(heads) + 1))
        for engine in engines:
            yield line([engine, *(self.entry(engine, cell) for cell in cells)])
        limits = [number(self.roofline.figure(cell, self.model)[1]) for cell in cells]
        yield line(["*limit of the machine*", *limits])
        if len(engines) > 1 and OURS in engines:
            ratios = [self.ratio(engines, cell) for cell in cells]
            yield line(["*Headway against the best peer*", *ratios])
        yield ""


def number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def line(entries: Sequence[str]) -> str:
    return "| " + " | ".join(entries) + " |"


def median_ceilings(results: Results) -> Ceilings:
    """Raises ValueError where none were measured."""
    found: dict[tuple[str, int], list[float]] = {}
    for record in results.of_kind("ceilings"):
        for name, threads, value in record["measured"]:
            found.setdefault((name, threads), []).append(value)
    if not found:
        raise ValueError("the results hold no ceilings of the machine: run benchmarks.compare")
    return ceilings([(*key, statistics.median(values)) for key, values in found.items()])


def heading(results: Results, limits: Ceilings) -> Iterator[str]:
    run = results.of_kind("run")[-1]
    commits = sorted({record["commit"] for record in results.of_kind("load")})
    yield f"{run['processor']} ({run['model']}), {run['cores']} cores, {run['memory_gib']} GiB;"
    yield f"{', '.join(run['has'])}; Linux {run['kernel']}."
    yield f"Commit {', '.join(commits)}, {run['at']}:"
    yield f"`{run['command']}`. Ceilings: {limits.read / 1e9:.1f} GB/s;"
    yield ", ".join(f"{weights} {rate / 1e9:.0f}" for weights, rate in limits.products.items())
    yield "thousand million operations a second.\n"


def settings(results: Results) -> Iterator[str]:
    """What each engine was, and the memory that it took for W1."""
    yield line(["engine", "version", "model", "weights", "settings", "load s", "W1: peak MiB"])
    yield line(["---"] * 7)
    seen: set[tuple[str, str, str]] = set()
    for record in results.of_kind("load"):
        key = record["engine"], record["model"], record["weights"]
        if key in seen:
            continue
        seen.add(key)
        peaks = [r["peak_mib"] for r in results.figures(Place(*key, "w1")) if "peak_mib" in r]
        peak = f"{max(peaks):,.0f}" if peaks else "-"
        load = f"{results.load_s(*key):.1f}"
        yield line([key[0], record["version"], key[1], key[2], record["settings"], load, peak])
    yield ""


def noise(results: Results) -> Iterator[str]:
    """How much of this should not be quoted."""
    figures = [record for record in results.figures() if "figures" in record]
    loud = sum(is_noisy(record) for record in figures)
    yield f"{len(figures)} figures, {loud} of them disturbed: others and the host used more than"
    yield f"{NOISY_CORES} cores meanwhile, or two were not worth {2 * LEAST_WHOLE:.1f} then."


def tables(results: Results, folder: Path) -> Iterator[str]:
    limits = median_ceilings(results)
    yield from heading(results, limits)
    for model in MODELS:
        if not any(record["model"] == model for record in results.figures()):
            continue
        yield f"### {model}\n"
        shape = Shape.read(folder / model)
        for weights in CLASSES:
            table = Table(results, Roofline(shape, limits, weights), model, weights)
            single = [Cell("w2"), *(Cell(f"ttft/{n}") for n in PROMPT_LENGTHS)]
            heads = ["ms per token", *(f"first of {n:,}, ms" for n in PROMPT_LENGTHS)]
            yield from table.lines("W1", [Cell("w1")], ["output tokens per second"])
            yield from table.lines("W2, one stream", single, heads)
            for context in CONTEXTS:
                steps = [Cell(f"w3/{batch}x{context}") for batch in BATCHES]
                heads = [f"{batch} sequences" for batch in BATCHES]
                yield from table.lines(f"W3, ms per step at context {context:,}", steps, heads)
    yield from settings(results)
    yield from noise(results)


def show(folder: Path, results: Results) -> None:
    for text in tables(results, folder):
        print(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    show(arguments.folder, Results(arguments.results))


if __name__ == "__main__":
    main()
