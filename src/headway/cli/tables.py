"""Tables on a terminal, and plain ones elsewhere."""

from __future__ import annotations

import math
import shutil
import sys
import textwrap
from collections.abc import Iterator, Sequence

from headway.insight.figures import number, seconds

__all__ = ["number", "print_table", "print_text", "seconds", "share"]


def print_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, num_names: int = 1
) -> None:
    """The first columns are of names, all others of figures. Ruled on a terminal that is as wide.

    On a narrower one the columns stand in parts below each other, each with the names.
    """
    widths = [max(len(row[place]) for row in (header, *rows)) for place in range(len(header))]
    columns = shutil.get_terminal_size().columns if sys.stdout.isatty() else math.inf
    if sys.stdout.isatty() and sum(widths) + 3 * len(widths) + 1 <= columns:
        _print_ruled(header, rows)
        return
    for part, places in enumerate(_parts(widths, num_names, columns)):
        if part:
            print()
        for row in (header, *rows) if any(header) else rows:
            cells = (f"{row[i]:{'>' if i else '<'}{widths[i]}}" for i in places)
            print("  ".join(cells).rstrip())


def print_text(*lines: str) -> None:
    """Folded between words on a terminal, as they are elsewhere."""
    width = shutil.get_terminal_size().columns
    for line in lines:
        if not sys.stdout.isatty() or len(line) <= width:
            print(line)
            continue
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        print(textwrap.fill(line, width, subsequent_indent=indent, break_on_hyphens=False))


def _parts(widths: Sequence[int], num_names: int, columns: float) -> Iterator[list[int]]:
    """Which columns stand side by side."""
    names = list(range(num_names))
    places = list(names)
    for place in range(num_names, len(widths)):
        if len(places) > num_names and _width(widths, [*places, place]) > columns:
            yield places
            places = list(names)
        places.append(place)
    yield places


def _width(widths: Sequence[int], places: Sequence[int]) -> int:
    return sum(widths[place] for place in places) + 2 * (len(places) - 1)


def _print_ruled(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=any(header))
    for place, name in enumerate(header):
        table.add_column(name, justify="right" if place else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    Console(highlight=False).print(table)


def share(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1%}"
