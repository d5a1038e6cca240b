"""Charts as SVG, drawn here: a page that holds them loads nothing."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from headway.bench.curves import Curve
from headway.bench.figures import Distribution
from headway.simulator.plots import time_text

WIDTH, HEIGHT = 520, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 18, 34, 46
MEASURED, SIMULATED = "#2f6db2", "#e08a1e"
_BINS = 48
_MOST_TICKS = 7
_ROOM = 46  # for the text of a tick
_MOST_DOTS = 4000


@dataclass(frozen=True, slots=True)
class _Scale:
    """From values to pixels; the logarithm of values if `is_log`."""

    low: float
    high: float
    start: float
    end: float
    is_log: bool = False

    def at(self, value: float) -> float:
        """What lies beyond an end is at that end."""
        low, high = self._put(self.low), self._put(self.high)
        inside = min(self.high, max(self.low, value))
        return self.start + (self.end - self.start) * (self._put(inside) - low) / (high - low)

    def _put(self, value: float) -> float:
        return math.log(value) if self.is_log else value

    def ticks(self) -> list[float]:
        return _log_ticks(self.low, self.high) if self.is_log else _ticks(self.high)


def _x(low: float, high: float, *, is_log: bool = True) -> _Scale:
    if is_log:
        low, high = low / 1.1, max(high, low * 1.3) * 1.1
    return _Scale(low, high, _LEFT, WIDTH - _RIGHT, is_log)


def _y(high: float) -> _Scale:
    return _Scale(0.0, high * 1.08 or 1.0, HEIGHT - _BOTTOM, _TOP)


def _ticks(high: float) -> list[float]:
    step = 10.0 ** math.floor(math.log10(high / 2))
    step *= next((factor for factor in (1, 2, 5) if high / (step * factor) <= 6), 10)
    return [step * place for place in range(int(high / step) + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    """As many as there is room for: of 1, of 1, 2 and 5, or of all digits."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks: list[float] = []
    for factors in ((1,), (1, 2, 5), range(1, 10), [n / 10 for n in range(10, 100)]):
        every = [factor * 10.0**decade for decade in decades for factor in factors]
        within = [tick for tick in every if low <= tick <= high]
        if len(within) > _MOST_TICKS:
            break
        ticks = within
    return ticks


# ---- Charts ----


def latency_chart(curves: Sequence[Curve], label: str) -> str:
    """Tokens per second over a latency; each place is marked with its rate."""
    places = [place for curve in curves for place in curve.places]
    x = _x(min(p.latency_s for p in places), max(p.latency_s for p in places))
    y = _y(max(p.tokens_per_second for p in places))
    parts = [*_axes(x, y, f"{label}, log scale", "output tokens per second", time_text)]
    for place, curve in enumerate(curves):
        parts += _line(curve, x, y)
        parts += _key(curve, place)
    return _svg(parts, f"Throughput against {label}")


def histogram(times: Distribution, name: str, percentiles: Sequence[float]) -> str:
    """How many values lie where, with a mark at each percentile."""
    values = times.ordered[times.ordered > 0]
    if not len(values):
        return ""
    x = _x(float(values[0]), float(values[-1]))
    edges = np.geomspace(x.low, x.high, _BINS + 1)
    counts = np.histogram(values, edges)[0].tolist()
    y = _y(max(counts))
    parts = [*_axes(x, y, f"{name}, log scale", "how many", time_text)]
    for count, low, high in zip(counts, edges[:-1], edges[1:], strict=True):
        left, right, top = x.at(low), x.at(high), y.at(count)
        size = f'width="{max(0.5, right - left - 0.5):.1f}" height="{y.start - top:.1f}"'
        parts.append(f'<rect class="bar" x="{left:.1f}" y="{top:.1f}" {size}/>')
    for place, percent in enumerate(percentiles):
        at = x.at(times.at(percent))
        parts.append(f'<path class="mark" d="M{at:.1f} {_TOP}V{HEIGHT - _BOTTOM}"/>')
        parts.append(_text(at, _TOP - 4 - 9 * (place % 2), f"p{percent:g}", "middle", "small"))
    return _svg(parts, f"{name}: {len(times.ordered):,} values")


def over_time(due_s: Sequence[float], took_s: Sequence[float], name: str) -> str:
    """A dot for each request, at the time when it was due: a queue that grows is a slope."""
    if not due_s:
        return ""
    step = -(-len(due_s) // _MOST_DOTS)
    x, y = _x(0.0, max(max(due_s), 1e-3), is_log=False), _y(max(took_s))
    parts = [*_axes(x, y, "when it was due, s", f"{name}, s", lambda value: f"{value:g}")]
    dots = list(zip(due_s, took_s, strict=True))[::step]
    parts += [f'<circle class="dot" cx="{x.at(a):.1f}" cy="{y.at(b):.1f}" r="2"/>' for a, b in dots]
    return _svg(parts, f"{name} over time")


# ---- Parts ----


def _axes(
    x: _Scale, y: _Scale, x_label: str, y_label: str, x_text: Callable[[float], str]
) -> Iterator[str]:
    for value in y.ticks():
        at = y.at(value)
        yield f'<path class="grid" d="M{_LEFT} {at:.1f}H{WIDTH - _RIGHT}"/>'
        yield _text(_LEFT - 6, at + 4, f"{value:,g}", "end")
    last = 0.0
    for value in x.ticks():
        at = x.at(value)
        yield f'<path class="grid" d="M{at:.1f} {_TOP}V{HEIGHT - _BOTTOM}"/>'
        if at - last > _ROOM:
            yield _text(at, HEIGHT - _BOTTOM + 16, x_text(value), "middle")
            last = at
    yield _text((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 8, x_label, "middle")
    middle = (_TOP + HEIGHT - _BOTTOM) / 2
    turned = f'transform="rotate(-90 14 {middle:.0f})"'
    yield f'<text x="14" y="{middle:.0f}" text-anchor="middle" {turned}>{escape(y_label)}</text>'


def _line(curve: Curve, x: _Scale, y: _Scale) -> Iterator[str]:
    at = [(x.at(p.latency_s), y.at(p.tokens_per_second)) for p in curve.places]
    colour = SIMULATED if curve.is_simulated else MEASURED
    path = "L".join(f"{a:.1f} {b:.1f}" for a, b in at)
    dashes = ' stroke-dasharray="2 4"' if curve.is_tail else ""
    yield f'<path fill="none" stroke="{colour}" stroke-width="1.6"{dashes} d="M{path}"/>'
    fill = "#fff" if curve.is_tail else colour
    for (a, b), place in zip(at, curve.places, strict=True):
        title = f"<title>{place.rate:.3g} requests per second: {time_text(place.latency_s)}</title>"
        circle = f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3.2" fill="{fill}" stroke="{colour}">'
        yield f"{circle}{title}</circle>"
    if not curve.is_tail and not curve.is_simulated:
        yield from _names(at, curve)


def _names(at: Sequence[tuple[float, float]], curve: Curve) -> Iterator[str]:
    """Rates, where there is room between them."""
    last = (-100.0, -100.0)
    for (a, b), place in zip(at, curve.places, strict=True):
        if math.dist((a, b), last) > 16:
            yield _text(a - 5, b - 5, f"{place.rate:.3g}", "end", "small")
            last = (a, b)


def _key(curve: Curve, place: int) -> Iterator[str]:
    at, colour = _LEFT + 112 * place, SIMULATED if curve.is_simulated else MEASURED
    dashes = ' stroke-dasharray="2 4"' if curve.is_tail else ""
    yield f'<path stroke="{colour}" stroke-width="1.6"{dashes} d="M{at} 14h20"/>'
    yield _text(at + 24, 18, curve.name, "start", "small")


def _text(x: float, y: float, text: str, anchor: str, kind: str = "") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{named}>{escape(text)}</text>'


def _svg(parts: Sequence[str], title: str) -> str:
    size = f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}"'
    image = f'<svg {size} role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'
    return f"<figure><figcaption>{escape(title)}</figcaption>{image}</figure>"
