"""Whether two runs are the same: step by step, and in what became of each request."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np

from headway.simulator.result import Result
from headway.simulator.step_time.base import StepShape

_ROWS_AT_ONCE = 4096


class NotTheSame(BaseException):
    """Ends a run at the first step that is another."""

    def __init__(self, step: int) -> None:
        super().__init__(step)
        self.step = step


class Expected:
    """The steps of a known run, to hold those of another against as they come."""

    def __init__(self, result: Result) -> None:
        self._shapes = _shapes(result)
        self.num_steps = 0

    def check(self, shape: StepShape) -> None:
        """The next step. Raises NotTheSame."""
        if next(self._shapes, None) != shape:
            raise NotTheSame(self.num_steps)
        self.num_steps += 1


def _shapes(result: Result) -> Iterator[tuple[int, ...]]:
    columns = [result.steps[name] for name in StepShape._fields]
    for start in range(0, len(columns[0]), _ROWS_AT_ONCE):
        rows = [column[start : start + _ROWS_AT_ONCE].tolist() for column in columns]
        yield from zip(*rows, strict=True)


def first_different_step(one: Result, other: Result) -> int | None:
    """The first step that is another, or in which somebody fared otherwise; None: the same."""
    num_steps = min(len(one.steps["end_ns"]), len(other.steps["end_ns"]))
    differs = np.zeros(num_steps, bool)
    for name in (*StepShape._fields, "start_ns", "end_ns"):
        differs |= one.steps[name][:num_steps] != other.steps[name][:num_steps]
    if differs.any():
        return int(differs.argmax())
    if len(one.steps["end_ns"]) != len(other.steps["end_ns"]):
        return num_steps
    return None if _fates(one) == _fates(other) else num_steps


def digest(result: Result) -> str:
    """Equal for runs that are the same."""
    seen = hashlib.blake2b(digest_size=16)
    for name in (*StepShape._fields, "start_ns", "end_ns"):
        seen.update(result.steps[name].tobytes())
    seen.update(_fates(result))
    return seen.hexdigest()


def _fates(result: Result) -> bytes:
    """What became of each request."""
    seen = hashlib.blake2b()
    for column in result.sequences.values():
        seen.update(repr(column.tolist()).encode() if column.dtype == object else column.tobytes())
    seen.update(repr(sorted(result.refused)).encode())
    return seen.digest()
