"""Tables on a terminal, and plain ones elsewhere."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """The first column is of names, all others of figures."""
    if sys.stdout.isatty():
        from rich.console import Console
        from rich.table import Table

        table = Table()
        for place, name in enumerate(header):
            table.add_column(name, justify="right" if place else "left")
        for row in rows:
            table.add_row(*row)
        Console().print(table)
        return
    widths = [max(len(row[place]) for row in (header, *rows)) for place in range(len(header))]
    for row in (header, *rows) if any(header) else rows:
        first, *others = (
            f"{cell:<{width}}" if not place else f"{cell:>{width}}"
            for place, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        print("  ".join((first, *others)).rstrip())


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
