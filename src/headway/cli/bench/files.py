"""The figures of `headway bench serve` as JSON and CSV have them."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from headway.bench.figures import Figures
from headway.bench.outcome import Outcome
from headway.bench.sweep import RatePoint
from headway.cli.bench.readouts import Shown
from headway.cli.tables import number
from headway.flags import FlagError


def plain(figures: Figures, shown: Shown) -> dict[str, Any]:
    """All figures by name, seconds and shares."""
    values: dict[str, Any] = {
        name: getattr(figures, name)
        for name in (
            *("num_requests", "num_served", "endings", "messages", "duration_s", "arrivals_s"),
            *("drain_s", "peak_open", "num_prompt_tokens", "num_output_tokens", "num_events"),
            *("requests_per_second", "output_tokens_per_second", "steady_tokens_per_second"),
            *("prompt_tokens_per_second", "num_good", "good_share", "good_per_second"),
            *("kept_up_share", "is_usage_known", "is_cut"),
        )
    }
    for name, times in figures.times.items():
        at = {f"p{number(p)}": times.at(p) for p in shown.percentiles}
        values[f"{name}_s"] = {"mean": times.mean, **at, "max": times.at(100)}
    return values | {"client": asdict(figures.client), "complaints": figures.complaints()}


def request_values(outcome: Outcome) -> dict[str, Any]:
    """Of one request; times in seconds from the start of its load."""
    times = [time_ns / 1e9 for time_ns in outcome.times_ns]
    return {
        "name": outcome.name,
        "ending": outcome.label,
        "message": outcome.message or None,
        "intended_s": outcome.intended_ns / 1e9,
        "sent_s": outcome.sent_ns / 1e9 if outcome.sent_ns else None,
        "ended_s": outcome.ended_ns / 1e9,
        "events_s": times,
        "prompt_tokens": outcome.num_prompt_tokens,
        "output_tokens": outcome.num_output_tokens,
    }


def write_csv(points: Iterable[RatePoint], shown: Shown, target: str) -> None:
    """A row for each rate. Raises FlagError where it cannot be written."""
    rows = [{"rate": point.rate, **_flat(plain(point.figures, shown))} for point in points]
    names = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, names, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    if target == "-":
        print(text.getvalue(), end="")
        return
    try:
        Path(target).write_text(text.getvalue())
    except OSError as error:
        raise FlagError(f"--csv {target} cannot be written: {error.strerror}") from None


def _flat(values: dict[str, Any]) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= {f"{name}.{inner}": v for inner, v in _flat(value).items()}
        elif isinstance(value, list):
            flat[name] = "; ".join(map(str, value))
        else:
            flat[name] = value
    return flat
