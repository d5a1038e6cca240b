"""Throughput against latency as a picture file. Needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headway.bench.charts import MEASURED, SIMULATED
from headway.bench.curves import LATENCIES, Curve, curves_of
from headway.bench.sweep import RatePoint
from headway.simulator.plots import NoPlotsError, drawing, scale_by_time

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plot_latency(points: Sequence[RatePoint], path: str | Path, title: str) -> None:
    """Against the time to the first token, and between tokens. Raises NoPlotsError."""
    if not any(point.figures.num_served for point in points):
        raise NoPlotsError("nobody was served, so there is nothing to draw")
    with drawing(path, 1, 2, (11, 4.8)) as (figure, axes):
        figure.suptitle(title, x=0.01, ha="left", fontsize=11)
        for place, (latency, label) in enumerate(LATENCIES.items()):
            _draw(axes[0][place], curves_of(points, latency), label)
        axes[0][0].set_ylabel("output tokens per second")


def _draw(axes: Axes, curves: Sequence[Curve], label: str) -> None:
    for curve in curves:
        colour = SIMULATED if curve.is_simulated else MEASURED
        latencies_s, rates, _ = zip(*curve.places, strict=True)
        line, face = (":", "white") if curve.is_tail else ("-", colour)
        name = curve.name
        axes.plot(
            latencies_s, rates, line, marker="o", color=colour, mfc=face, ms=5, lw=1.4, label=name
        )
        if not (curve.is_simulated or curve.is_tail):
            _name_rates(axes, curve)
    if curves:
        scale_by_time(axes)
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2, fontsize=8)
    axes.set_ylim(bottom=0)
    axes.margins(x=0.08, y=0.1)
    axes.set_xlabel(label)


def _name_rates(axes: Axes, curve: Curve) -> None:
    for place in curve.places:
        axes.annotate(
            f"{place.rate:.3g}",
            (place.latency_s, place.tokens_per_second),
            xytext=(-5, 5),
            textcoords="offset points",
            fontsize=8,
            color=MEASURED,
            ha="right",
        )
