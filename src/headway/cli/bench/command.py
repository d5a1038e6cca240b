"""`headway bench serve`: any OpenAI-compatible server under an open-loop load."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headway.flags import FlagError

if TYPE_CHECKING:
    from headway.bench.session import Session
    from headway.bench.sweep import RatePoint
    from headway.cli.bench.flags import BenchFlags
    from headway.cli.bench.load import LoadPlan
    from headway.cli.bench.progress import Progress

_INTERRUPTED = 130


def main(argv: Sequence[str]) -> int:
    """Returns the exit code: 2 for what cannot be measured, 1 for doubtful figures."""
    command, rest = (argv[0], argv[1:]) if argv else ("", [])
    if command in ("--help", "-h") or (command == "serve" and {"--help", "-h"} & set(rest)):
        from headway.cli.bench.help import print_bench_help

        print_bench_help()
        return 0
    try:
        if command != "serve":
            wrong = f"there is no {command!r}" if command else "what to measure is missing"
            raise FlagError(f"{wrong}: say headway bench serve URL")
        return _serve(rest)
    except (FlagError, ValueError) as error:
        print(f"headway bench serve: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return _INTERRUPTED


def _serve(argv: Sequence[str]) -> int:
    from headway.cli.bench.flags import BenchFlags
    from headway.cli.bench.load import OTHER_FLAGS
    from headway.cli.bench.tell import refuse_unwritable_files, tell

    flags = BenchFlags(argv, OTHER_FLAGS)
    refuse_unwritable_files(flags)
    for warning in flags.warnings:
        print(f"headway bench serve: {warning}", file=sys.stderr)
    run = _run_of(flags)
    points = list(run.points())
    run.progress.clear()
    points, about = run.simulated(points)
    tell(points, run.plan, run.session, about)
    for point in points:
        if point.figures.is_cut:
            print(f"headway bench serve: {point.measured.why_cut}", file=sys.stderr)
    if points[-1].measured.is_interrupted:
        return _INTERRUPTED
    return 1 if any(_is_doubtful(point, flags) for point in points) else 0


def _is_doubtful(point: RatePoint, flags: BenchFlags) -> bool:
    """The figures are the client's, the server went away, or nobody was served."""
    figures = point.figures
    is_broken = figures.is_cut and not flags.has("--drain-s")
    return bool(figures.complaints()) or is_broken or not figures.num_served


def _run_of(flags: BenchFlags) -> _Run:
    """Raises FlagError, or ValueError where there is no server, before anything is measured."""
    from headway.bench.session import Session
    from headway.cli.bench.load import load_plan
    from headway.cli.bench.progress import Progress
    from headway.cli.bench.session import form_of, objectives_of, rules_of, shown_of
    from headway.cli.bench.simulation import refuse_unreadable, simulation_of, split_settings

    url, settings = split_settings(flags)
    plan = load_plan(flags)
    objectives, rules = objectives_of(flags), rules_of(flags, plan)
    shown_of(flags)
    refuse_unreadable(flags)
    if not flags.has("--simulate-from"):
        simulation_of(flags, settings, plan.first()[0])
    progress = Progress(is_shown=not flags.has("--disable-tqdm"))
    session = Session(
        form=form_of(flags, url), rules=rules, objectives=objectives, on_tick=progress.tick
    )
    return _Run(plan, settings, session, progress)


@dataclass(slots=True)
class _Run:
    """All that is measured."""

    plan: LoadPlan
    settings: Mapping[str, Any]  # of the engine that is simulated
    session: Session
    progress: Progress
    lone_s: float = math.nan  # that a request takes alone

    def points(self) -> Iterator[RatePoint]:
        """In the order in which they were measured."""
        from headway.bench.sweep import at_rates, round_the_limit

        flags, rates = self.plan.flags, self.plan.rates
        self.progress.heading = "warming up: "
        self.lone_s = self.session.warm_up(self.plan.first()[0], flags.whole("--num-warmups", 1))
        if flags.has("--sweep"):
            yield from round_the_limit(rates[0] if rates else self._first_rate(), self._measure)
        elif rates:
            yield from at_rates(rates, self._measure)
        else:
            yield self._measure(None)

    def _first_rate(self) -> float:
        """One request at a time."""
        return float(f"{1 / self.lone_s:.2g}") if self.lone_s > 0 else 1.0

    def _measure(self, rate: float | None) -> RatePoint:
        from headway.bench.server_metrics import read_histograms, since
        from headway.bench.sweep import RatePoint

        form = self.session.form
        workload, num_due = self.plan.at(rate)
        self.progress.num_due = num_due
        self.progress.heading = "" if rate is None else f"{rate:g} requests/s: "
        before = read_histograms(form.target, form.headers)
        measured = self.session.measure(workload, num_due)
        server = since(before, read_histograms(form.target, form.headers)) if before else {}
        if rate is None:
            arrivals_s = measured.figures.arrivals_s
            rate = measured.figures.num_requests / arrivals_s if arrivals_s else math.inf
        return RatePoint(rate, measured, server)

    def simulated(self, points: Sequence[RatePoint]) -> tuple[list[RatePoint], str | None]:
        """With the simulated figures beside the measured, and where those come from."""
        from headway.cli.bench.simulation import simulation_of

        has_rates = bool(self.plan.rates) or self.plan.is_sweep
        loads = [self.plan.at(point.rate if has_rates else None)[0] for point in points]
        simulation = simulation_of(self.plan.flags, self.settings, loads[0])
        if simulation is None:
            return list(points), None
        pairs = zip(points, loads, strict=True)
        told = [replace(point, simulated=simulation.of(load)) for point, load in pairs]
        return told, simulation.about
