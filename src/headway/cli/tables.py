"""Tables on a terminal, and plain ones elsewhere."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Sequence

from headway.insight.figures import seconds

__all__ = ["number", "print_table", "seconds", "share"]


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """The first column is of names, all others of figures. Ruled on a terminal that is as wide."""
    widths = [max(len(row[place]) for row in (header, *rows)) for place in range(len(header))]
    ruled_width = sum(widths) + 3 * len(widths) + 1
    if sys.stdout.isatty() and ruled_width <= shutil.get_terminal_size().columns:
        _print_ruled(header, rows)
        return
    for row in (header, *rows) if any(header) else rows:
        first, *others = (
            f"{cell:>{width}}" if place else f"{cell:<{width}}"
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join((first, *others)).rstrip())


def _print_ruled(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=any(header))
    for place, name in enumerate(header):
        table.add_column(name, justify="right" if place else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)


def number(value: float) -> str:
    """At most four digits that matter; thousands apart."""
    if math.isnan(value):
        return "-"
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"


def share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1%}"
