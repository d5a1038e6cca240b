"""What is told of a measurement: on the terminal and in files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from headway.bench.session import Session
from headway.bench.sweep import RatePoint
from headway.cli.bench.files import plain, request_values, write_csv
from headway.cli.bench.flags import BenchFlags
from headway.cli.bench.load import LoadPlan
from headway.cli.bench.readouts import Shown, print_point, print_rates
from headway.cli.bench.session import shown_of
from headway.cli.readouts import refuse_undrawable, refuse_unwritable, write_json
from headway.cli.tables import print_text
from headway.flags import FlagError


def refuse_unwritable_files(flags: BenchFlags) -> None:
    """Before the load, not after it. Raises FlagError."""
    for name in ("--json", "--csv", "--html"):
        refuse_unwritable(name, flags.get(name))
    refuse_undrawable("--png", flags.get("--png"))
    if flags.get("--json") == flags.get("--csv") == "-":
        raise FlagError("--json - and --csv - both write to standard output: give one a file")
    if flags.get("--html") == "-":
        raise FlagError("--html takes a file")


def tell(
    points: Sequence[RatePoint], plan: LoadPlan, session: Session, simulation: str | None
) -> None:
    """`simulation`: what was simulated. Raises FlagError where a file cannot be written."""
    flags, shown = plan.flags, shown_of(plan.flags)
    heading = _heading(plan, session)
    if "-" not in (flags.get("--json"), flags.get("--csv")):
        print_text(*heading)
        print()
        if len(points) > 1:
            print_rates(points)
        else:
            print_point(points[0], shown)
    settings = _settings(plan, session, simulation)
    _write_figures(points, flags, shown, settings)
    _write_pictures(points, flags, shown, heading, settings)


def _heading(plan: LoadPlan, session: Session) -> list[str]:
    form = session.form
    how = "as words" if form.sends_words else "as token ids"
    lines = [
        f"{form.target.url}{form.endpoint}, {form.model}: {plan.about()}, {how}; "
        f"{plan.arrivals()}. Latencies count from when a request was due."
    ]
    return lines + [f"Of the workload: {note}." for note in plan.notes()]


def _settings(plan: LoadPlan, session: Session, simulation: str | None) -> dict[str, Any]:
    form, flags = session.form, plan.flags
    return {
        "label": flags.get("--label"),
        "server": form.target.url,
        "endpoint": form.endpoint,
        "model": form.model,
        "workload": plan.spec,
        "text_seed": form.salt,
        "flags": flags.given(),
        "metadata": flags.pairs("--metadata"),
        "percentile": "the least value that so many percent do not exceed",
        "simulation": simulation,
        "finished_at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    }


def _write_figures(
    points: Sequence[RatePoint], flags: BenchFlags, shown: Shown, settings: dict[str, Any]
) -> None:
    from headway.cli.bench.saved import save_result

    if target := flags.get("--json"):
        told: list[dict[str, Any]] = []
        for point in points:
            told.append({"rate": point.rate, **plain(point.figures, shown)})
            if point.simulated:
                told[-1]["simulated"] = point.simulated.to_dict()
            if flags.has("--save-detailed"):
                told[-1]["requests"] = [request_values(o) for o in point.measured.outcomes]
        write_json({"settings": settings, "points": told}, target)
    if target := flags.get("--csv"):
        write_csv(points, shown, target)
    if flags.has("--save-result"):
        for point in points:
            save_result(point, flags, shown, settings["model"])


def _write_pictures(
    points: Sequence[RatePoint],
    flags: BenchFlags,
    shown: Shown,
    heading: Sequence[str],
    settings: dict[str, Any],
) -> None:
    if target := flags.get("--html"):
        from headway.cli.bench.report import write_page

        write_page(points, heading, shown, settings, target)
    if target := flags.get("--png"):
        from headway.bench.plots import plot_latency

        plot_latency(points, target, f"{settings['label'] or settings['model']}")
