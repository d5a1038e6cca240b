"""Many runs: a grid of settings, and the same settings under several seeds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from itertools import product
from typing import Any

from headway.simulator.binding import Binding
from headway.simulator.config import Setup
from headway.simulator.result import Result, Spread, Summary
from headway.simulator.same import digest


@dataclass(frozen=True, slots=True)
class Point:
    """One place of a sweep: what was set there, and a summary for each seed.

    Points of equal `digest` decided the same, step by step.
    """

    values: Mapping[str, Any]
    summaries: tuple[Summary, ...]
    binding: Binding  # of the first seed
    digest: str

    def figure(self, read: Callable[[Summary], float]) -> tuple[float, float]:
        """Mean and standard deviation over the seeds; the latter 0 for one."""
        return mean_and_deviation([read(summary) for summary in self.summaries])


def grid(axes: Mapping[str, SequenceOf[Any]]) -> Iterator[dict[str, Any]]:
    """Every combination; the last axis moves fastest."""
    for values in product(*axes.values()):
        yield dict(zip(axes, values, strict=True))


def sweep(
    axes: Mapping[str, SequenceOf[Any]],
    setup_of: Callable[[Mapping[str, Any], int], Setup],
    *,
    num_seeds: int = 1,
    on_result: Callable[[Mapping[str, Any], Result], None] = lambda values, result: None,
) -> Iterator[Point]:
    """Run every place of the grid, `num_seeds` times each.

    `setup_of(values, number)` gives the run of that place under its seed `number`, from 0.
    Raises what the runs raise.
    """
    for values in grid(axes):
        yield point(values, (setup_of(values, n) for n in range(num_seeds)), on_result)


def point(
    values: Mapping[str, Any],
    setups: Iterable[Setup],
    on_result: Callable[[Mapping[str, Any], Result], None] = lambda values, result: None,
) -> Point:
    """Run one place."""
    summaries: list[Summary] = []
    digests: list[str] = []
    binding: Binding | None = None
    for setup in setups:
        result = setup.run()
        on_result(values, result)
        summaries.append(result.summary())
        digests.append(digest(result))
        binding = binding or Binding.of(result)
    assert binding is not None
    return Point(dict(values), tuple(summaries), binding, "+".join(digests))


def mean_and_deviation(values: SequenceOf[float]) -> tuple[float, float]:
    """Of those that are numbers; NaN where none is. The deviation is the sample's."""
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return math.nan, math.nan
    mean = sum(known) / len(known)
    if len(known) == 1:
        return mean, 0.0
    return mean, math.sqrt(sum((value - mean) ** 2 for value in known) / (len(known) - 1))


def same_points(points: Iterable[Point]) -> list[list[Point]]:
    """Groups, of two at least, that decided the same."""
    groups: dict[str, list[Point]] = {}
    for one in points:
        groups.setdefault(one.digest, []).append(one)
    return [group for group in groups.values() if len(group) > 1]


def flat(summary: Summary) -> dict[str, float]:
    """All figures by name, percentiles as `ttft_s.p99`."""
    figures: dict[str, float] = {}
    for f in dataclasses.fields(summary):
        value = getattr(summary, f.name)
        if isinstance(value, Spread):
            figures |= {f"{f.name}.{name}": v for name, v in dataclasses.asdict(value).items()}
        else:
            figures[f.name] = value
    return figures
