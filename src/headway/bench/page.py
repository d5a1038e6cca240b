"""A report as one HTML file, which loads nothing from anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #1d2430; max-width: 1120px; margin: 2em auto;
  padding: 0 1em; }
h1 { font-size: 1.5em; margin-bottom: .2em; } h2 { font-size: 1.15em; margin-top: 1.8em; }
table { border-collapse: collapse; margin: 1em 0; font-variant-numeric: tabular-nums; }
th, td { padding: .25em .8em; text-align: right; border-bottom: 1px solid #e3e6ea; }
th:first-child, td:first-child { text-align: left; }
.wide { overflow-x: auto; }
.charts { display: flex; flex-wrap: wrap; gap: 1em; }
figure { margin: 0; max-width: 100%; } figcaption { font-weight: 600; margin: .3em 0; }
svg { max-width: 100%; height: auto; } svg text { font: 11px system-ui, sans-serif; fill: #444; }
svg .small { font-size: 10px; } .grid { stroke: #e3e6ea; } .bar { fill: #2f6db2; }
.mark { stroke: #c8322b; stroke-dasharray: 3 3; } .dot { fill: #2f6db2; fill-opacity: .55; }
.invalid { background: #fbe9e7; border-left: 4px solid #c8322b; padding: .5em 1em; }
pre { background: #f6f7f9; padding: .8em; overflow-x: auto; font-size: 12px; }
"""


@dataclass(frozen=True, slots=True)
class Table:
    """The first column is of names."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def html(self) -> str:
        head = _row("th", self.header) if any(self.header) else ""
        body = "".join(_row("td", row) for row in self.rows)
        return f'<div class="wide"><table>{head}{body}</table></div>'


@dataclass(frozen=True, slots=True)
class Section:
    """`charts` are SVG, all else is text."""

    title: str
    lines: Sequence[str] = ()
    tables: Sequence[Table] = ()
    charts: Sequence[str] = ()
    text: str = ""

    def html(self) -> str:
        parts = [f"<h2>{escape(self.title)}</h2>"]
        parts += [f"<p>{escape(line)}</p>" for line in self.lines]
        parts += [table.html() for table in self.tables]
        if charts := [chart for chart in self.charts if chart]:
            parts.append(f'<div class="charts">{"".join(charts)}</div>')
        if self.text:
            parts.append(f"<pre>{escape(self.text)}</pre>")
        return "".join(parts)


def page(
    title: str, lines: Sequence[str], warnings: Sequence[str], sections: Sequence[Section]
) -> str:
    """`warnings` are those that make the figures worthless."""
    head = f'<meta charset="utf-8"><title>{escape(title)}</title><style>{_STYLE}</style>'
    viewport = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    body = [f"<h1>{escape(title)}</h1>", *(f"<p>{escape(line)}</p>" for line in lines)]
    body += [f'<p class="invalid">{escape(warning)}</p>' for warning in warnings]
    body += [section.html() for section in sections]
    document = f"<!doctype html><html lang=en>{head}{viewport}<body>{''.join(body)}</body></html>"
    return document + "\n"


def _row(tag: str, cells: Sequence[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>"
