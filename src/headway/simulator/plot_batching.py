"""A picture of what continuous batching is worth. It needs matplotlib."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from pathlib import Path

from headway.simulator.batching import BatchingPoint
from headway.simulator.plots import LINE_COLOURS, drawing


def plot_batching(points: SequenceOf[BatchingPoint], about: str, path: str | Path) -> None:
    """Throughput in both units by batch size, and the gain. Raises NoPlotsError."""
    blue, orange, green, _ = LINE_COLOURS
    sizes = [point.batch_size for point in points]
    with drawing(path, 1, 2, (11, 4.6)) as (figure, axes):
        figure.suptitle(f"Continuous and static batching: {about}", x=0.01, ha="left")
        rates, gains = axes[0]
        continuous = [point.continuous_per_second for point in points]
        rates.plot(sizes, continuous, "-o", color=blue, ms=5, label="continuous")
        static = [point.static_per_second for point in points]
        rates.plot(sizes, static, "-o", color=orange, ms=5, label="static")
        rates.set_ylabel("output tokens per second")
        simulated = [point.gain for point in points]
        gains.plot(sizes, simulated, "-o", color=blue, ms=5, label="simulated")
        by_slots = [point.slot_gain for point in points]
        gains.plot(sizes, by_slots, ":o", color=green, ms=4, label="by idle slots alone")
        gains.set_ylabel("continuous / static (times)")
        for each in (rates, gains):
            each.set_xscale("log", base=2)
            each.set_xticks(sizes, [str(size) for size in sizes])
            each.minorticks_off()
            each.set_xlabel("batch size (slots)")
            each.set_ylim(bottom=0)
            each.legend(loc="upper left")
