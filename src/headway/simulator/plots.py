"""Pictures of runs: throughput against latency, batch over time, lanes. They need matplotlib."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from headway.simulator.lanes import LaneLog, Span, spans_of
from headway.simulator.result import Column, Result, Summary
from headway.simulator.sweep import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_BLUE, _ORANGE, _GREEN, _RED = "#2f6db2", "#e08a1e", "#4a9e5c", "#c8322b"
LINE_COLOURS = (_BLUE, _ORANGE, _GREEN, _RED)
_LIGHT = "#e7eaee"
_LANE_COLOURS = {  # later ones lie above
    "waiting": _LIGHT,
    "idle": "#c9d8ea",
    "decode": _BLUE,
    "preempted": _RED,
    "prefill": _ORANGE,
    "computed again": "#7a4a08",
}
_SHORT_KINDS = ("prefill", "computed again")
_LEAST_SEEN = 350  # of these widths make a whole picture
_MOST_BINS = 1500
_STYLE: Any = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e3e6ea",
    "grid.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.edgecolor": "#777777",
    "font.size": 10,
    "legend.frameon": False,
    "svg.hashsalt": "headway",
}


_PERCENTILE_STYLES: tuple[dict[str, Any], ...] = (
    {"ls": "-", "marker": "o", "label": "p50"},
    {"ls": ":", "marker": "o", "mfc": "white", "label": "p99"},
)


class NoPlotsError(ValueError):
    """There is nothing to draw with, or nothing that can be drawn."""


def plot_latency(points: SequenceOf[Point], path: str | Path) -> None:
    """Throughput against time to first token, and against time between tokens: p50 and p99.

    Points that differ in the first swept setting only are joined. Raises NoPlotsError.
    """
    names = " and ".join(points[0].values)
    with drawing(path, 1, 2, (11, 4.8)) as (figure, axes):
        figure.suptitle(f"Throughput against latency, by {names}", x=0.01, ha="left")
        ttft, itl = axes[0]
        _draw_latency(ttft, points, "time to first token", lambda s: (s.ttft_s.p50, s.ttft_s.p99))
        _draw_latency(itl, points, "time between tokens", lambda s: (s.itl_s.p50, s.itl_s.p99))
        ttft.set_ylabel("output tokens per second")


def plot_batch(result: Result, path: str | Path) -> None:
    """Running and waiting, held blocks and preemptions over time. Raises NoPlotsError."""
    if not len(result.steps["end_ns"]):
        raise NoPlotsError("a run without a step has no picture")
    times, firsts = _stretches(result)
    with drawing(path, 2, 1, (11, 5.8), sharex=True) as (_, axes):
        upper, lower = axes[0][0], axes[1][0]
        upper.set_title("Batch over time", loc="left")
        _draw_batch(upper, result, times, firsts)
        _draw_blocks(lower, result, times, firsts)
        lower.set_xlabel("seconds")
        lower.set_xlim(0, (result.steps["end_ns"][-1] - result.steps["start_ns"][0]) / 1e9)


def plot_lanes(result: Result, log: LaneLog, path: str | Path) -> None:
    """A lane for each sequence, over steps: waiting, prefill, decode, preempted.

    Short prefills are drawn wider than they are, to be seen. Raises NoPlotsError for a log without
    sequences.
    """
    spans = spans_of(result, log)
    if not spans:
        raise NoPlotsError("nobody was served, so there are no lanes")
    num_lanes = 1 + max(span.lane for span in spans)
    num_left_out = len(result.sequences["ended_ns"]) - num_lanes
    more = f", the first of {num_lanes + num_left_out:,}" if num_left_out > 0 else ""
    with drawing(path, 1, 1, (11, min(12.0, 1.6 + 0.11 * num_lanes))) as (_, axes):
        axes[0][0].set_title(
            f"{num_lanes:,} requests over {log.num_steps:,} steps{more}", loc="left"
        )
        _draw_lanes(axes[0][0], spans, num_lanes, log.num_steps)


# ---- Throughput against latency ----


def _draw_latency(
    axes: Axes,
    points: SequenceOf[Point],
    label: str,
    read: Callable[[Summary], tuple[float, float]],
) -> None:
    groups = list(_lines(points).items())
    named: list[tuple[float, float]] = []
    for place, (name, line) in enumerate(groups):
        colour = _line_colour(place, len(groups))
        heights = [point.figure(lambda s: s.output_tokens_per_second)[0] for point in line]
        for which, style in enumerate(_PERCENTILE_STYLES):
            widths = [point.figure(lambda s, w=which: read(s)[w])[0] for point in line]  # type: ignore[misc]
            mark = f"{name} {style['label']}".strip()
            axes.plot(widths, heights, **{**style, "label": mark}, color=colour, ms=5, lw=1.4)
            if which == 0:
                _name_points(axes, line, widths, heights, colour, named)
    scale_by_time(axes)
    axes.set_ylim(bottom=0)
    axes.margins(x=0.08, y=0.1)
    axes.set_xlabel(label)
    axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, fontsize=8)


def scale_by_time(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.set_xscale("log")
    least, most = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=_steps(most / least)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: time_text(value)))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _steps(span: float) -> tuple[float, ...]:
    """What a power of ten is named at, so that there are a few names and no crowd."""
    if span < 5:
        return tuple(map(float, range(1, 10)))
    return (1.0, 2.0, 5.0) if span < 100 else (1.0,)


def time_text(seconds: float) -> str:
    if seconds >= 1:
        return f"{seconds:,.0f} s"
    return f"{seconds * 1e3:g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:g} us"


def _lines(points: SequenceOf[Point]) -> dict[str, list[Point]]:
    """Points that differ in the first setting only, by what the others are."""
    lines: dict[str, list[Point]] = {}
    for point in points:
        _, *others = point.values.items()
        name = " ".join(f"{setting}={value}" for setting, value in others)
        lines.setdefault(name, []).append(point)
    return lines


def _line_colour(place: int, count: int) -> Any:
    if count <= len(LINE_COLOURS):
        return LINE_COLOURS[place]
    from matplotlib import colormaps

    return colormaps["viridis"](0.9 * place / (count - 1))


def _name_points(
    axes: Axes,
    line: SequenceOf[Point],
    widths: SequenceOf[float],
    heights: SequenceOf[float],
    colour: Any,
    named: list[tuple[float, float]],
) -> None:
    """Each with its value; those that decided the same with all of theirs, where the last is.

    `named`: where there are names already, of other lines too; no more than two stand together.
    """
    names: dict[str, list[str]] = {}
    for point in line:
        names.setdefault(point.digest, []).append(str(next(iter(point.values.values()))))
    places = dict(zip((p.digest for p in line), zip(widths, heights, strict=True), strict=True))
    for digest, (x, y) in places.items():
        num_near = sum(_are_near(place, (x, y), max(heights)) for place in named)
        if num_near > 1:
            continue
        named.append((x, y))
        axes.annotate(
            ", ".join(names[digest]),
            (x, y),
            xytext=(6, -11) if num_near else (-5, 5),
            textcoords="offset points",
            fontsize=8,
            color=colour,
            ha="left" if num_near else "right",
        )


def _are_near(one: tuple[float, float], other: tuple[float, float], highest: float) -> bool:
    return abs(one[1] - other[1]) < 0.05 * highest and 0.7 < one[0] / other[0] < 1.4


# ---- Batch over time ----


def _stretches(result: Result) -> tuple[Column, Column]:
    """Where each stretch of steps begins, in seconds and as a step; as many as can be seen."""
    starts = result.steps["start_ns"]
    origin = starts[0]
    if len(starts) <= _MOST_BINS:
        firsts = np.arange(len(starts))
    else:
        span = max(1, int(result.steps["end_ns"][-1] - origin))
        edges = origin + np.linspace(0, span, _MOST_BINS, endpoint=False)
        firsts = np.unique(np.searchsorted(starts, edges, side="left").clip(max=len(starts) - 1))
    return (starts[firsts] - origin) / 1e9, firsts


def _draw_batch(axes: Axes, result: Result, times: Column, firsts: Column) -> None:
    steps = result.steps
    running = _largest(steps["num_running"], firsts)
    waiting = _largest(steps["num_waiting"], firsts)
    axes.fill_between(times, running, step="post", color=_BLUE, alpha=0.25, lw=0)
    axes.step(times, running, where="post", color=_BLUE, lw=1.2, label="running")
    axes.step(times, waiting, where="post", color=_ORANGE, lw=1.2, label="waiting")
    preempting = steps["num_preempted"] > 0
    if preempting.any():
        at = (steps["start_ns"][preempting] - steps["start_ns"][0]) / 1e9
        count = int(steps["num_preempted"].sum())
        axes.plot(
            at,
            np.zeros(len(at)),
            "|",
            color=_RED,
            ms=9,
            mew=1.1,
            clip_on=False,
            zorder=5,
            label=f"preemptions ({count:,})",
        )
    axes.set_ylim(bottom=0)
    axes.set_ylabel("requests")
    _legend_above(axes)


def _draw_blocks(axes: Axes, result: Result, times: Column, firsts: Column) -> None:
    steps, block_size = result.steps, result.config.block_size
    held = 100 * _largest(steps["num_held_blocks"], firsts) / result.num_blocks
    live = steps["num_live_tokens"][firsts] / block_size / result.num_blocks * 100
    axes.step(times, held, where="post", color=_GREEN, lw=1.2, label="held")
    axes.fill_between(
        times, live, step="post", color=_GREEN, alpha=0.3, lw=0, label="holding a live token"
    )
    axes.set_ylim(0, 105)
    axes.set_ylabel("% of KV cache")
    _legend_above(axes)


def _legend_above(axes: Axes) -> None:
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3)


def _largest(column: Column, firsts: Column) -> Column:
    """In each stretch, so that no peak is lost."""
    return np.maximum.reduceat(column, firsts)


# ---- Lanes ----


def _draw_lanes(axes: Axes, spans: SequenceOf[Span], num_lanes: int, num_steps: int) -> None:
    from matplotlib.collections import PolyCollection
    from matplotlib.patches import Patch

    by_kind: Mapping[str, list[Span]] = {kind: [] for kind in _LANE_COLOURS}
    for span in spans:
        by_kind[span.kind].append(span)
    for kind, group in by_kind.items():
        least = num_steps / _LEAST_SEEN if kind in _SHORT_KINDS else 0.0
        boxes = [_box(lane, start, max(end, start + least)) for lane, start, end, _ in group]
        colour = _LANE_COLOURS[kind]
        axes.add_collection(PolyCollection(boxes, facecolors=colour, linewidths=0))
    axes.set_xlim(0, max(1, num_steps))
    axes.set_ylim(num_lanes - 0.4, -0.6)
    axes.grid(visible=False)
    axes.set_xlabel("step")
    axes.set_ylabel("request, by arrival")
    patches = [Patch(color=_LANE_COLOURS[kind], label=kind) for kind, g in by_kind.items() if g]
    axes.legend(handles=patches, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=9)


def _box(lane: int, start: float, end: float) -> list[tuple[float, float]]:
    top, bottom = lane - 0.42, lane + 0.42
    return [(start, top), (end, top), (end, bottom), (start, bottom)]


# ---- matplotlib ----


@contextmanager
def drawing(
    path: str | Path,
    num_rows: int,
    num_columns: int,
    size: tuple[float, float],
    *,
    sharex: bool = False,
) -> Iterator[tuple[Figure, Any]]:
    """A figure and its axes, to draw on; written when drawn."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise NoPlotsError(
            "plots need matplotlib: pip install 'headway[plots]', or pip install matplotlib"
        ) from None
    with matplotlib.rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        yield figure, figure.subplots(num_rows, num_columns, squeeze=False, sharex=sharex)
        try:
            figure.savefig(path, dpi=150)
        except (OSError, ValueError) as error:
            raise NoPlotsError(f"{path} cannot be written: {error}") from None
