"""What a file of usage holds, a line for each figure, and what was left out of it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import numpy as np

from headway.insight.figures import counted
from headway.insight.usage.answer import Ending
from headway.insight.usage.columns import UNSAID, Integers, Usage

_MOST_NAMED = 5  # models
_A_DATE = 1e9  # seconds since 1970; less counts from some other beginning
_LATEST = 32_503_680_000.0  # the year 3000


def usage_lines(usage: Usage) -> tuple[str, ...]:
    """The figures that the findings are read beside."""
    return (
        *_models(usage),
        *_times(usage),
        *_tokens("prompt", usage.prompt_tokens),
        *_tokens("output", usage.lengths()),
        *_endings(usage),
        *_queue(usage),
    )


def usage_notes(usage: Usage) -> tuple[str, ...]:
    """What was left out or taken for granted."""
    notes = [
        f"{left.count:,} left out: {reason}"
        + (f" (first: line {left.first_line})" * bool(left.first_line))
        for reason, left in usage.left_out.items()
    ]
    num_shared = int((usage.num_choices > 1).sum())
    if num_shared:
        notes.append(
            f"{counted(num_shared, 'answer')} of several choices, of which only the sum of their "
            "tokens is known: each counts with the mean"
        )
    return tuple(notes)


def _models(usage: Usage) -> Iterator[str]:
    counts = np.bincount(usage.group, minlength=len(usage.groups))
    order = np.argsort(-counts, kind="stable")
    named = [(usage.groups[i].name, int(counts[i])) for i in order if usage.groups[i].name]
    if named:
        listed = ", ".join(f"{name} {count:,}" for name, count in named[:_MOST_NAMED])
        more = f" and {len(named) - _MOST_NAMED:,} more" if len(named) > _MOST_NAMED else ""
        yield f"answers by model: {listed}{more}"


def _times(usage: Usage) -> Iterator[str]:
    known = usage.at_s[~np.isnan(usage.at_s)]
    if len(known) < 2 or known.max() == known.min():
        return
    first, last = float(known.min()), float(known.max())
    rate = f"{len(known) / (last - first):,.3g} answers/s"
    if first >= _A_DATE and last < _LATEST:
        begin, end = (datetime.fromtimestamp(at, UTC) for at in (first, last))
        yield f"from {begin:%Y-%m-%d %H:%M} to {end:%Y-%m-%d %H:%M} UTC, {rate}"
    else:
        yield f"over {last - first:,.0f} s, {rate}"


def _tokens(what: str, column: Integers) -> Iterator[str]:
    told = column[column != UNSAID]
    if len(told):
        middle, high = np.quantile(told, (0.5, 0.99), method="inverted_cdf")
        yield (
            f"{what} tokens: {told.mean():,.0f} on average, p50 {middle:,}, p99 {high:,}, "
            f"{told.max():,} at most"
        )


def _endings(usage: Usage) -> Iterator[str]:
    counts = np.bincount(usage.ending, minlength=len(Ending))
    told = {e: int(counts[e]) for e in Ending if e is not Ending.UNKNOWN and counts[e]}
    if told:
        listed = ", ".join(
            f"{ending.name.lower()} {count:,} ({count / len(usage):.1%})"
            for ending, count in told.items()
        )
        yield f"ended by: {listed}"


def _queue(usage: Usage) -> Iterator[str]:
    known = usage.queue_ms[~np.isnan(usage.queue_ms)]
    if len(known):
        middle, high = np.quantile(known, (0.5, 0.99))
        yield f"in the queue: p50 {middle:,.3g} ms, p99 {high:,.3g} ms"
