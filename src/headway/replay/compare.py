"""Where two drivers decided differently, as a sentence."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from itertools import zip_longest

from headway.drive.record import StepRecord

_DECIDED = tuple(f.name for f in fields(StepRecord) if f.name not in ("start_ns", "end_ns"))
_MOST_SHOWN = 8


def first_difference(one: Iterable[StepRecord], other: Iterable[StepRecord]) -> str | None:
    """The first step that two decision logs do not share; None if they are the same."""
    for first, second in zip_longest(one, other):
        if first is None or second is None:
            longer, step = ("second", second) if first is None else ("first", first)
            return f"step {step.index} is in the {longer} log only: {_decision(step)}"
        if sentence := difference(first, second):
            return sentence
    return None


def difference(one: StepRecord, other: StepRecord) -> str | None:
    """How two decisions differ, times aside; None if they do not."""
    if one.decision == other.decision:
        return None
    parts = [
        _of_values(name, getattr(one, name), getattr(other, name))
        for name in _DECIDED
        if getattr(one, name) != getattr(other, name)
    ]
    return f"step {one.index} differs: {'; '.join(parts)}"


def _of_values(name: str, one: object, other: object) -> str:
    if isinstance(one, tuple) and isinstance(other, tuple):
        only_one = [row for row in one if row not in other]
        only_other = [row for row in other if row not in one]
        if not only_one and not only_other:
            return f"{name} in another order: {_rows(one)} and {_rows(other)}"
        return f"{name} {_rows(only_one)} in the first and {_rows(only_other)} in the second"
    return f"{name} {one!r} in the first and {other!r} in the second"


def _rows(rows: Iterable[object]) -> str:
    shown = [_row(row) for row in rows]
    if len(shown) > _MOST_SHOWN:
        shown[_MOST_SHOWN:] = [f"{len(shown) - _MOST_SHOWN} more"]
    return ", ".join(shown) or "nothing"


def _row(row: object) -> str:
    return f"({', '.join(map(repr, row))})" if isinstance(row, tuple) else repr(row)


def _decision(step: StepRecord) -> str:
    """Everything in it that says something."""
    values = ((name, getattr(step, name)) for name in _DECIDED)
    return "; ".join(
        f"{name} {_rows(value)}" if isinstance(value, tuple) else f"{name} {value!r}"
        for name, value in values
        if value not in ((), None, "")
    )
