"""The files of `headway bench serve` that people look at: a page and a picture."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from headway.bench.charts import histogram, latency_chart, over_time
from headway.bench.curves import LATENCIES, curves_of
from headway.bench.figures import Figures
from headway.bench.outcome import Outcome
from headway.bench.page import Section, Table, page
from headway.bench.sweep import RatePoint, best_point
from headway.cli.bench.readouts import (
    Shown,
    best_line,
    client_lines,
    figure_rows,
    invalid_line,
    rate_rows,
    rate_text,
    server_rows,
    simulated_rows,
    time_rows,
)
from headway.flags import FlagError

_TIME_NAMES = {
    "ttft": "time to first token",
    "tpot": "mean time between tokens",
    "itl": "time between tokens",
    "e2el": "start to end",
}


def write_page(
    points: Sequence[RatePoint],
    heading: Sequence[str],
    shown: Shown,
    settings: dict[str, Any],
    target: str,
) -> None:
    """Raises FlagError where it cannot be written."""
    title = f"{settings['label'] or settings['model']}: load and latency"
    warnings = [line for point in points if (line := invalid_line(point.figures))]
    text = page(title, heading, warnings, list(_sections(points, shown, settings)))
    try:
        Path(target).write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise FlagError(f"--html {target} cannot be written: {error.strerror}") from None


def _sections(
    points: Sequence[RatePoint], shown: Shown, settings: dict[str, Any]
) -> Iterator[Section]:
    simulated = [Table(*simulated_rows(points))] if points[0].simulated else []
    if len(points) > 1:
        yield Section(
            "By request rate",
            [best_line(points)],
            [Table(*rate_rows(points, is_wide=True))],
            list(_latency_charts(points)),
        )
    if simulated:
        charts = [] if len(points) > 1 else list(_latency_charts(points))
        yield Section("Simulated", [str(settings.get("simulation"))], simulated, charts)
    chosen = (best_point(points) or points[0]) if len(points) > 1 else points[0]
    yield _one(chosen, shown, is_one_of_many=len(points) > 1)
    yield Section("Settings", text=json.dumps(settings, indent=1, default=str))


def _latency_charts(points: Sequence[RatePoint]) -> Iterator[str]:
    for latency, label in LATENCIES.items():
        if curves := curves_of(points, latency):
            yield latency_chart(curves, label)


def _one(point: RatePoint, shown: Shown, *, is_one_of_many: bool) -> Section:
    figures = point.figures
    title = f"At {rate_text(point.rate)} requests per second" if is_one_of_many else "Figures"
    tables = [Table(("", ""), figure_rows(figures)), Table(*time_rows(figures, shown))]
    if point.server:
        tables.append(Table(*server_rows(point)))
    charts = [
        histogram(figures.times[name], _TIME_NAMES[name], shown.percentiles) for name in shown.times
    ]
    charts += _over_time(figures, point.measured.outcomes)
    return Section(title, client_lines(figures), tables, charts)


def _over_time(figures: Figures, outcomes: Sequence[Outcome]) -> list[str]:
    served = [outcome for outcome in outcomes if outcome.is_served]
    if not served or not figures.arrivals_s:
        return []
    due_s = [outcome.intended_ns / 1e9 for outcome in served]
    first = [outcome.ttft_ns() / 1e9 for outcome in served]
    return [over_time(due_s, first, _TIME_NAMES["ttft"])]
