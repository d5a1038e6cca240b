"""What `headway bench serve` prints, and its files but for pictures."""

from __future__ import annotations

import csv
import io
import math
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headway.bench.figures import TIMES, Figures
from headway.bench.outcome import Outcome
from headway.bench.sweep import RatePoint, best_point
from headway.bench.tally import Tally
from headway.cli.tables import number, print_table, seconds, share
from headway.flags import FlagError

_NAMES = {
    "ttft": "time to first token (TTFT)",
    "tpot": "mean between tokens (TPOT)",
    "itl": "between tokens (ITL)",
    "e2el": "start to end (e2e)",
}
_WIDE = 110  # columns of a terminal that has room for all


@dataclass(frozen=True, slots=True)
class Shown:
    """Which times, at which percentiles."""

    times: tuple[str, ...] = TIMES
    percentiles: tuple[float, ...] = (50.0, 90.0, 99.0)


def print_figures(figures: Figures, shown: Shown) -> None:
    """Of one load."""
    print_table(("", ""), _rows(figures))
    print()
    header = ("", "mean", *(f"p{number(p)}" for p in shown.percentiles), "max")
    rows = []
    for name in shown.times:
        times = figures.times[name]
        values = (times.mean, *map(times.at, shown.percentiles), times.at(100))
        rows.append((_NAMES[name], *map(seconds, values)))
    print_table(header, rows)
    print()
    print("\n".join(client_lines(figures)))


def _rows(figures: Figures) -> list[tuple[str, str]]:
    rows = [("requests served", f"{figures.num_served:,} of {figures.num_requests:,}")]
    rows += [(f"  {label}", f"{n:,}") for label, n in figures.endings.items() if label != "served"]
    rows += [
        ("duration", seconds(figures.duration_s)),
        ("  requests arrived for", seconds(figures.arrivals_s)),
        ("  then the last were waited for", seconds(figures.drain_s)),
        ("most at once", number(figures.peak_open)),
        ("requests per second", number(figures.requests_per_second)),
        ("output tokens per second", number(figures.output_tokens_per_second)),
        ("  while requests arrived", number(figures.steady_tokens_per_second)),
        ("prompt tokens per second", number(figures.prompt_tokens_per_second)),
        ("prompt tokens", number(figures.num_prompt_tokens)),
        ("output tokens", number(figures.num_output_tokens)),
    ]
    if figures.num_good is not None:
        rows.append(("requests that met the objectives", share(figures.good_share)))
        rows.append(("goodput, such requests per second", number(figures.good_per_second)))
    return rows


def client_lines(figures: Figures) -> list[str]:
    """Whether the client was fast enough; what was said by those who did not serve."""
    client, complaints = figures.client, figures.complaints()
    lines = [
        f"The client: {client.cpu_share:.0%} of a core; 99 of 100 requests left within "
        f"{seconds(client.lateness_s.p99)}, 99 of 100 reads within {seconds(client.lag_s.p99)}."
    ]
    if complaints:
        lines.append(f"INVALID, these are the client's figures: {'; '.join(complaints)}.")
    lines += token_lines(figures)
    lines += [f"Of {label}, the first: {text}" for label, text in figures.messages.items()]
    return lines


def token_lines(figures: Figures) -> list[str]:
    """How tokens were counted, where that is not what one expects."""
    lines = []
    if not figures.is_usage_known:
        lines.append("The server does not tell usage: events with text are counted as tokens.")
    elif figures.num_events and abs(figures.num_output_tokens / figures.num_events - 1) > 0.02:
        per_event = figures.num_output_tokens / figures.num_events
        lines.append(f"An event brings {number(per_event)} tokens; ITL is between events.")
    if figures.num_output_tokens < 0.98 * figures.num_asked_tokens:
        part = figures.num_output_tokens / figures.num_asked_tokens
        lines.append(
            f"Outputs ended after {part:.0%} of the tokens that the load says: --ignore-eos makes "
            "them go on."
        )
    return lines


# ---- Several rates ----

Column = tuple[str, Callable[[RatePoint], str]]


def _time(name: str, percent: float) -> Callable[[RatePoint], str]:
    return lambda point: seconds(point.figures.times[name].at(percent))


_COLUMNS: tuple[Column, ...] = (
    ("rate", lambda p: _rate(p.rate)),
    ("served/s", lambda p: number(p.figures.requests_per_second)),
    ("tokens/s", lambda p: number(p.figures.output_tokens_per_second)),
    ("TTFT p50", _time("ttft", 50)),
    ("p99", _time("ttft", 99)),
    ("ITL p50", _time("itl", 50)),
    ("p99", _time("itl", 99)),
)
_MORE_COLUMNS: tuple[Column, ...] = (
    ("TPOT p50", _time("tpot", 50)),
    ("e2e p50", _time("e2el", 50)),
    ("p99", _time("e2el", 99)),
    ("most at once", lambda p: number(p.figures.peak_open)),
)
_GOOD: Column = ("good", lambda p: share(p.figures.good_share))
_KEPT_UP: Column = ("kept up", lambda p: share(p.figures.kept_up_share))
_FAILED: Column = ("not served", lambda p: number(p.figures.num_requests - p.figures.num_served))


def print_rates(points: Sequence[RatePoint]) -> None:
    """A row for each rate, then the best of them."""
    columns = [*_COLUMNS]
    if shutil.get_terminal_size().columns >= _WIDE or not sys.stdout.isatty():
        columns += _MORE_COLUMNS
    columns.append(_KEPT_UP if points[0].figures.num_good is None else _GOOD)
    if any(p.figures.num_served < p.figures.num_requests for p in points):
        columns.append(_FAILED)
    ordered = sorted(points, key=lambda point: point.rate)
    rows = [tuple(read(point) for _, read in columns) for point in ordered]
    print_table(tuple(name for name, _ in columns), rows)
    print()
    print(best_line(points))
    for point in ordered:
        for line in client_lines(point.figures)[1:]:
            print(f"At {_rate(point.rate)}: {line}")


def best_line(points: Sequence[RatePoint]) -> str:
    best = best_point(points)
    with_objectives = points[0].figures.num_good is not None
    what = "nine requests in ten meet the objectives" if with_objectives else "no queue grows"
    if best is None:
        return f"At none of these rates it holds that {what}."
    figures = best.figures
    return (
        f"Best operating point: {_rate(best.rate)} requests per second, the highest of these at "
        f"which {what}: {number(figures.output_tokens_per_second)} tokens per second, TTFT "
        f"{seconds(figures.times['ttft'].at(50))} in the median and "
        f"{seconds(figures.times['ttft'].at(99))} at p99."
    )


def _rate(rate: float) -> str:
    return "inf" if math.isinf(rate) else f"{rate:g}"


# ---- While it runs ----


class Progress:
    """One line on standard error, if that is a terminal."""

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown and sys.stderr.isatty()
        self.heading = ""
        self.num_due: int | None = None

    def tick(self, tally: Tally) -> None:
        if not self._is_shown:
            return
        due = "" if self.num_due is None else f" of {self.num_due:,}"
        bad = sum(not outcome.is_served for outcome in tally.outcomes[-10_000:])
        failed = f", {bad:,} not served" if bad else ""
        line = f"{self.heading}{len(tally.outcomes):,}{due} ended, {tally.num_open:,} open{failed}"
        print(f"\r{line[: shutil.get_terminal_size().columns - 1]}\x1b[K", end="", file=sys.stderr)
        sys.stderr.flush()

    def clear(self) -> None:
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


# ---- Files ----


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
