"""Tables on a terminal, and plain ones elsewhere."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Sequence


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


def seconds(value: float) -> str:
    """In the unit that suits: 153 us, 21.4 ms, 3.20 s."""
    if math.isnan(value):
        return "-"
    if value == 0:
        return "0"
    for unit, scale in (("s", 1.0), ("ms", 1e-3)):
        if abs(value) >= scale:
            return f"{_three_digits(value / scale)} {unit}"
    return f"{_three_digits(value / 1e-6)} us"


def share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1%}"


def _three_digits(value: float) -> str:
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{digits}f}"
