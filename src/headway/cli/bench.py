"""`headway bench serve`: any OpenAI-compatible server under an open-loop load."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headway.flags import FlagError

if TYPE_CHECKING:
    from headway.bench.session import Measured, Session
    from headway.bench.sweep import RatePoint
    from headway.cli.bench_flags import BenchFlags
    from headway.cli.bench_load import LoadPlan
    from headway.cli.bench_readouts import Progress, Shown

INTERRUPTED = 130


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 2 for what cannot be measured, 1 for figures that are the client's."""
    command, rest = (argv[0], argv[1:]) if argv else ("", [])
    if command in ("--help", "-h") or (command == "serve" and {"--help", "-h"} & set(rest)):
        from headway.cli.bench_help import print_bench_help

        print_bench_help()
        return 0
    try:
        if command != "serve":
            raise FlagError(f"there is no {command!r}: say headway bench serve URL")
        return _serve(rest)
    except (FlagError, ValueError) as error:
        print(f"headway bench serve: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return INTERRUPTED


def _serve(argv: Sequence[str]) -> int:
    from headway.cli.bench_flags import BenchFlags
    from headway.cli.bench_load import OTHER_FLAGS, load_plan

    flags = BenchFlags(argv, OTHER_FLAGS)
    run = _Run.of(flags, load_plan(flags))
    for warning in flags.warnings:
        print(f"headway bench serve: {warning}", file=sys.stderr)
    points = list(run.points())
    run.progress.clear()
    return run.tell(points)


@dataclass(slots=True, kw_only=True)
class _Run:
    """All that was asked for."""

    flags: BenchFlags
    plan: LoadPlan
    session: Session
    shown: Shown
    progress: Progress
    lone_s: float = math.nan  # that a request takes alone

    @staticmethod
    def of(flags: BenchFlags, plan: LoadPlan) -> _Run:
        """Raises FlagError, or ValueError where there is no server."""
        from headway.bench.session import Session
        from headway.cli.bench_readouts import Progress
        from headway.cli.bench_session import form_of, objectives_of, rules_of, shown_of

        shown, objectives = shown_of(flags), objectives_of(flags)
        _refuse_unwritable(flags)
        plan.at(plan.rates[0] if plan.rates else None if not plan.is_sweep else 1.0)
        progress = Progress(is_shown=not flags.has("--disable-tqdm"))
        session = Session(
            form=form_of(flags),
            rules=rules_of(flags, plan),
            objectives=objectives,
            on_tick=progress.tick,
        )
        return _Run(flags=flags, plan=plan, session=session, shown=shown, progress=progress)

    def points(self) -> Iterator[RatePoint]:
        from headway.bench.sweep import RatePoint, at_rates, round_the_limit

        num_warmups = self.flags.whole("--num-warmups", 1)
        first = self.plan.rates[0] if self.plan.rates else None
        workload, _ = self.plan.at(1.0 if first is None and self.plan.is_sweep else first)
        self.progress.heading = "warming up: "
        self.lone_s = self.session.warm_up(workload, num_warmups)
        if self.flags.has("--sweep"):
            yield from round_the_limit(first or self._first_rate(), self._measure)
        elif first is None:
            measured = self._measure(None)
            yield RatePoint(_own_rate(measured), measured)
        else:
            yield from at_rates(self.plan.rates, self._measure)

    def _first_rate(self) -> float:
        """One request at a time."""
        return float(f"{1 / self.lone_s:.2g}") if self.lone_s > 0 else 1.0

    def _measure(self, rate: float | None) -> Measured:
        workload, num_due = self.plan.at(rate)
        self.progress.num_due = num_due
        self.progress.heading = f"{rate:g} requests/s: " if rate is not None else ""
        return self.session.measure(workload, num_due)

    # ---- What is told ----

    def tell(self, points: Sequence[RatePoint]) -> int:
        """Returns the exit code."""
        from headway.cli.bench_readouts import print_figures, print_rates

        if "-" not in (self.flags.get("--json"), self.flags.get("--csv")):
            print("\n".join(self._heading()))
            print()
            if len(points) > 1:
                print_rates(points)
            else:
                print_figures(points[0].figures, self.shown)
        for point in points:
            if point.figures.is_cut:
                print(f"headway bench serve: {point.measured.why_cut}", file=sys.stderr)
        self._write(points)
        if points[-1].measured.is_interrupted:
            return INTERRUPTED
        return 1 if any(point.figures.complaints() for point in points) else 0

    def _heading(self) -> list[str]:
        form = self.session.form
        how = "as words" if form.sends_words else "as token ids"
        arrivals = self.plan.arrivals()
        lines = [
            f"{form.target.url}{form.endpoint}, {form.model}: {self.plan.about()}, {how}, "
            f"{arrivals}; latencies count from the time at which a request was due."
        ]
        lines += [f"Of the workload: {note}." for note in self.plan.notes()]
        return lines

    def _write(self, points: Sequence[RatePoint]) -> None:
        from headway.cli.bench_readouts import plain, request_values, write_csv
        from headway.cli.readouts import write_json

        if target := self.flags.get("--json"):
            is_detailed = self.flags.has("--save-detailed")
            told: list[dict[str, Any]] = []
            for point in points:
                told.append({"rate": point.rate, **plain(point.figures, self.shown)})
                if is_detailed:
                    told[-1]["requests"] = [request_values(o) for o in point.measured.outcomes]
            write_json({"settings": self._settings(), "points": told}, target)
        if target := self.flags.get("--csv"):
            write_csv(points, self.shown, target)

    def _settings(self) -> dict[str, Any]:
        form = self.session.form
        return {
            "label": self.flags.get("--label"),
            "server": form.target.url,
            "endpoint": form.endpoint,
            "model": form.model,
            "workload": self.plan.spec,
            "text_seed": form.salt,
            "flags": self.flags.given(),
            "metadata": self.flags.pairs("--metadata"),
            "percentile": "the least value that so many percent do not exceed",
            "finished_at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        }


def _own_rate(measured: Measured) -> float:
    """Of a workload that has its own times."""
    figures = measured.figures
    return figures.num_requests / figures.arrivals_s if figures.arrivals_s else math.inf


def _refuse_unwritable(flags: BenchFlags) -> None:
    from headway.cli.readouts import refuse_unwritable

    for name in ("--json", "--csv", "--png", "--html"):
        refuse_unwritable(name, flags.get(name))
    if flags.get("--json") == flags.get("--csv") == "-":
        raise FlagError("--json - and --csv - both write to standard output: give one a file")
