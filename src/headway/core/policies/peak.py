"""How much memory those who run are expected to hold at their common peak, and how surely.

All sizes are tokens. A sequence of n tokens holds (n + half a block) on average; blocks that others
hold too count once, with those who never leave.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from math import isqrt
from typing import NamedTuple

from headway.core.policies.forecast import ONE, Survival

_NUM_HORIZONS = 16  # evenly spaced ones
_NUM_LIMITS = 64  # points at which some reach their limits
_NUM_AGES = 24
_RARE = ONE // 200  # beyond what so few outputs reach nobody looks
# How often, in a million, a normal variable is above its mean by so many thousandths of its
# standard deviation.
_RISKS = (1, 10, 100, 1000, 5000, 10000, 20000, 50000, 100000, 200000, 300000, 400000, 500000)
_BEYOND = (4753, 4265, 3719, 3090, 2576, 2326, 2054, 1645, 1282, 842, 524, 253, 0)


def deviations(risk_in_a_million: int) -> int:
    """Thousandths of a standard deviation that are exceeded with that probability."""
    place = min(max(1, bisect_left(_RISKS, risk_in_a_million)), len(_RISKS) - 1)
    (low, high), (most, least) = _RISKS[place - 1 : place + 1], _BEYOND[place - 1 : place + 1]
    inside = min(max(risk_in_a_million, low), high) - low
    return most - (most - least) * inside // (high - low)


class Resident(NamedTuple):
    """Of its tokens `age` are output and at most `left` are to come; `size` is what it holds."""

    survival: Survival
    age: int
    left: int
    size: int

    @property
    def reach(self) -> int:
        """Steps until it has nearly surely ended; one past all that was seen doubles its age."""
        return min(self.left, max(self.survival.reach(_RARE) - self.age, self.age, 1))

    @property
    def likely_reaches_its_limit(self) -> bool:
        beyond = self.survival.beyond
        return beyond(self.age + self.left - 1) * 4 >= beyond(self.age)


class _Cell:
    """Residents of one class and about one age."""

    def __init__(self, survival: Survival, age: int) -> None:
        self._beyond = survival.beyond
        self._age = age
        self._now = survival.beyond(age)
        self._members: list[Resident] = []
        self._least_left: int | None = None
        self._sums = (0, 0, 0)

    def add(self, resident: Resident) -> None:
        self._members.append(resident)
        if self._least_left is None or resident.left < self._least_left:
            self._least_left = resident.left
        number, size, square = self._sums
        self._sums = (number + 1, size + resident.size, square + resident.size**2)

    def expected(self, at: int) -> tuple[int, int]:
        """Mean and variance of what they hold so many steps from now."""
        number, size, square = self._sums
        if self._least_left is None or at >= self._least_left:
            sizes = [resident.size for resident in self._members if resident.left > at]
            number, size, square = len(sizes), sum(sizes), sum(s * s for s in sizes)
        if not number:
            return 0, 0
        share = self._beyond(self._age + at) * ONE // self._now
        square += 2 * at * size + number * at * at
        return (
            share * (size + number * at) // ONE,
            share * (ONE - share) // ONE * square // ONE,
        )


class Peak:
    """The expectation of one moment, worked out as far as somebody asks."""

    def __init__(self, residents: Iterable[Resident], num_held: int, block_size: int) -> None:
        """`num_held`: tokens that the blocks held now have room for, and those due to prompts."""
        residents = list(residents)
        reach = max((resident.reach for resident in residents), default=1)
        limits = [r.left - 1 for r in residents if r.likely_reaches_its_limit]
        self._horizons = _horizons(reach, limits)
        self._known: dict[int, tuple[int, int]] = {}
        self._cells: dict[tuple[Survival, int], _Cell] = {}
        self._width = max(1, reach // _NUM_AGES)
        for resident in residents:
            self._cell_of(resident).add(resident)
        own = sum(resident.size for resident in residents)
        self._fixed = num_held - own
        self._phases = len(residents) * block_size * block_size // 12  # variance of last blocks

    def _cell_of(self, resident: Resident) -> _Cell:
        survival, age, _, _ = resident
        place = age // self._width
        cell = self._cells.get((survival, place))
        if cell is None:
            cell = self._cells[survival, place] = _Cell(survival, place * self._width)
        return cell

    def lack(self, newcomer: Resident, capacity: int, deviations: int, first: int) -> int | None:
        """None if all of them and one more keep within `capacity` tokens, but for the risk.

        Otherwise how many steps from now they do not; `first` is looked at first.
        """
        cell = _Cell(newcomer.survival, newcomer.age)
        cell.add(newcomer)
        room = capacity - self._fixed
        last = min(newcomer.left - 1, self._horizons[-1])
        for at in (min(first, last), *self._horizons, last):
            mean, variance = self._expected(at)
            more, more_variance = cell.expected(at)
            spread = isqrt(variance + more_variance + self._phases) * deviations // 1000
            if mean + more + spread > room:
                return at
        return None

    def _expected(self, at: int) -> tuple[int, int]:
        known = self._known.get(at)
        if known is None:
            parts = [cell.expected(at) for cell in self._cells.values()]
            known = sum(mean for mean, _ in parts), sum(variance for _, variance in parts)
            self._known[at] = known
        return known

    def add(self, newcomer: Resident) -> None:
        """The newcomer runs."""
        self._cell_of(newcomer).add(newcomer)
        self._known.clear()


def _horizons(reach: int, limits: list[int]) -> list[int]:
    """Near ones at doubling distances, then evenly spaced; and where memory ends to grow."""
    step = -(-reach // _NUM_HORIZONS)
    horizons = set(range(0, reach + step, step))
    near = 1
    while near < step:
        horizons.add(near)
        near *= 2
    limits.sort()
    horizons.update(limits[:: -(-len(limits) // _NUM_LIMITS) or 1])
    return sorted(horizons)
