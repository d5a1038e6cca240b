"""Figures as people read them."""

from __future__ import annotations

import math


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


def number(value: float) -> str:
    """At most four digits that matter; thousands apart."""
    if math.isnan(value):
        return "-"
    if value == int(value) or abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"


def counted(count: float, noun: str) -> str:
    """1 request, 2 requests."""
    return f"{count:,.0f} {noun}{'' if count == 1 else 's'}"


def nanoseconds(value: int) -> str:
    return seconds(value / 1e9)


def listed(names: list[str]) -> str:
    """A, B and C."""
    *some, last = names
    return f"{', '.join(some)} and {last}" if some else last


def _three_digits(value: float) -> str:
    digits = max(0, 2 - math.floor(math.log10(abs(value)))) if value else 0
    return f"{value:,.{digits}f}"
