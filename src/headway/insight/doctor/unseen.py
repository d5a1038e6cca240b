"""Counts that stand still on a page while what they count goes on: not known, rather than 0."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from headway.insight.doctor.combine import COUNTS
from headway.insight.doctor.readings import Reading
from headway.insight.doctor.servers import Server

_STEPS_SEEN = 10  # of the last digit, from which on a change says how much


def without_unseen(readings: Sequence[Reading], last: Reading, server: Server) -> list[Reading]:
    """`readings` begin with the server's life before the watch; `last` is that up to its end."""
    coarse = _too_coarse(readings[0], last, server.digits)
    return [
        _without(reading, server.late, () if reading.since_start else coarse)
        for reading in readings
    ]


def _without(reading: Reading, late: Sequence[str], coarse: Sequence[str]) -> Reading:
    still = [name for name in late if reading.num_running and not getattr(reading, name)]
    cleared: dict[str, Any] = dict.fromkeys((*still, *coarse))
    return replace(reading, **cleared) if cleared else reading


def _too_coarse(before: Reading, now: Reading, digits: int | None) -> tuple[str, ...]:
    """Of large counts, the last digit that is printed stands for more than a watch brings."""
    if digits is None:
        return ()
    found = []
    for name in COUNTS:
        count, earlier = getattr(now, name), getattr(before, name) or 0.0
        if not count or count < 10**digits:
            continue
        step = 10 ** (math.floor(math.log10(count)) + 1 - digits)
        if 0 <= count - earlier < _STEPS_SEEN * step:
            found.append(name)
    return tuple(found)
