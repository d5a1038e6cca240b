"""What `headway bench serve` prints."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headway.bench.figures import TIMES, Figures
from headway.bench.sweep import RatePoint, best_point
from headway.cli.tables import number, print_table, print_text, seconds, share

_NAMES = {
    "ttft": "time to first token (TTFT)",
    "tpot": "mean between tokens (TPOT)",
    "itl": "between tokens (ITL)",
    "e2el": "start to end (e2e)",
}
Rows = tuple[Sequence[str], Sequence[Sequence[str]]]  # a header, and what stands below it
_WIDE = 110  # columns of a terminal that has room for all


@dataclass(frozen=True, slots=True)
class Shown:
    """Which times, at which percentiles."""

    times: tuple[str, ...] = TIMES
    percentiles: tuple[float, ...] = (50.0, 90.0, 99.0)


def print_point(point: RatePoint, shown: Shown) -> None:
    """Of one load."""
    figures = point.figures
    print_table(("", ""), figure_rows(figures))
    print()
    print_table(*time_rows(figures, shown))
    for table in (server_rows(point), simulated_rows([point])):
        if table[1]:
            print()
            print_table(*table)
    print()
    print_text(*client_lines(figures))


def time_rows(figures: Figures, shown: Shown) -> Rows:
    header = ("", "mean", *(f"p{number(p)}" for p in shown.percentiles), "max")
    rows = []
    for name in shown.times:
        times = figures.times[name]
        values = (times.mean, *map(times.at, shown.percentiles), times.at(100))
        rows.append((_NAMES[name], *map(seconds, values)))
    return header, rows


def server_rows(point: RatePoint) -> Rows:
    """What the server's own metrics have, beside the client's mean."""
    rows = [
        (
            _NAMES[name],
            seconds(point.figures.times[name].mean),
            seconds(histogram.mean_s),
            _between(*histogram.between_s(50)),
            _between(*histogram.between_s(99)),
            number(histogram.count),
        )
        for name, histogram in point.server.items()
    ]
    return ("the server's /metrics", "mean here", "there", "p50 there", "p99", "values"), rows


def _between(low_s: float, high_s: float) -> str:
    return (
        f"over {seconds(low_s)}" if math.isinf(high_s) else f"{seconds(low_s)} to {seconds(high_s)}"
    )


def figure_rows(figures: Figures) -> list[tuple[str, str]]:
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
    client = figures.client
    told = (
        f"The client: {client.cpu_share:.0%} of a core; 99 of 100 requests left within "
        f"{seconds(client.lateness_s.p99)} of their time, 99 of 100 reads came within "
        f"{seconds(client.lag_s.p99)}."
    )
    said = [f"Of {label}, the first: {text}" for label, text in figures.messages.items()]
    lines = [told, invalid_line(figures), *token_lines(figures), *said]
    return [line for line in lines if line]


def invalid_line(figures: Figures) -> str:
    """Empty where the figures are the server's."""
    complaints = figures.complaints()
    return f"INVALID, these figures are the client's: {'; '.join(complaints)}." * bool(complaints)


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
    ("rate", lambda p: rate_text(p.rate)),
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
    is_wide = shutil.get_terminal_size().columns >= _WIDE or not sys.stdout.isatty()
    print_table(*rate_rows(points, is_wide=is_wide))
    print()
    simulated = simulated_rows(points)
    if simulated[1]:
        print_table(*simulated)
        print()
    print_text(best_line(points))
    for point in sorted(points, key=lambda point: point.rate):
        for line in client_lines(point.figures)[1:]:
            print_text(f"At {rate_text(point.rate)}: {line}")


def rate_rows(points: Sequence[RatePoint], *, is_wide: bool) -> Rows:
    columns = [*_COLUMNS, *(_MORE_COLUMNS if is_wide else ())]
    columns.append(_KEPT_UP if points[0].figures.num_good is None else _GOOD)
    if any(p.figures.num_served < p.figures.num_requests for p in points):
        columns.append(_FAILED)
    ordered = sorted(points, key=lambda point: point.rate)
    rows = [tuple(read(point) for _, read in columns) for point in ordered]
    return tuple(name for name, _ in columns), rows


def simulated_rows(points: Sequence[RatePoint]) -> Rows:
    """None where nothing is simulated."""
    header = ("simulated, rate", "tokens/s", "TTFT p50", "p99", "ITL p50", "p99", "largest batch")
    rows = []
    for point in sorted(points, key=lambda point: point.rate):
        if (summary := point.simulated) is None:
            continue
        spreads = (summary.ttft_s, summary.itl_s)
        times = [seconds(value) for spread in spreads for value in (spread.p50, spread.p99)]
        rate = number(summary.output_tokens_per_second)
        rows.append((rate_text(point.rate), rate, *times, number(summary.peak_batch)))
    return header, rows


def best_line(points: Sequence[RatePoint]) -> str:
    best = best_point(points)
    with_objectives = points[0].figures.num_good is not None
    good = "nine requests in ten meet the objectives and " if with_objectives else ""
    what = f"{good}no queue grows"
    if best is None:
        return f"At none of these rates it holds that {what}."
    figures = best.figures
    return (
        f"Best operating point: {rate_text(best.rate)} requests per second, the highest of these "
        f"at which {what}: {number(figures.output_tokens_per_second)} tokens per second, TTFT "
        f"{seconds(figures.times['ttft'].at(50))} in the median and "
        f"{seconds(figures.times['ttft'].at(99))} at p99."
    )


def rate_text(rate: float) -> str:
    return "inf" if math.isinf(rate) else f"{rate:g}"
