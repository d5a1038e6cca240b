"""How much memory those who run are expected to hold at their common peak, and how surely.

All sizes are tokens. A sequence of n tokens holds (n + half a block) on average; blocks that others
hold too count once, with those who never leave.
"""

from __future__ import annotations

from collections.abc import Iterable
from math import isqrt
from typing import NamedTuple

from headway.core.policies.forecast import ONE, Survival

_NUM_HORIZONS = 16  # evenly spaced ones
_NUM_LIMITS = 64  # points at which some reach their limits
_NUM_AGES = 24
_RARE = ONE // 200  # beyond what so few outputs reach nobody looks
# By how much, in millionths of its standard deviation, a normal variable is on the mean above what
# lies so many eighths of one over its own mean; what is below counts as none.
_OVER = (
    *(398942, 339555, 286345, 239169, 197797, 161920, 131167, 105116),
    *(83315, 65295, 50587, 38734, 29307, 21906, 16174, 11793),
    *(8491, 6035, 4235, 2933, 2004, 1352, 899, 590),
    *(382, 244, 154, 95, 58, 35, 21, 12, 7, 4, 2, 1, 0),
)


def expected_victims(room: int, deviation: int, size: int) -> int:
    """In millionths: how many of `size` must go, on the mean, for what a normal sum is above `room`
    over its own mean; all in tokens. One if it is above at all, and one for each `size` above.
    """
    if room < 0:
        return 1_000_000
    place, inside = divmod(8 * room, deviation) if deviation else (len(_OVER), 0)
    if place >= len(_OVER) - 1:
        return 0
    more, less = _OVER[place : place + 2]
    # The slope is how likely it is to be above, on the mean over an eighth of a deviation.
    return 8 * (more - less) + (more * deviation - (more - less) * inside) // size


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

    def most(self, at: int) -> int:
        """What they hold by then if all stay."""
        return sum(resident.size + at for resident in self._members if resident.left > at)


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

    def lack(
        self, newcomer: Resident, capacity: int, risk_in_a_million: int, first: int
    ) -> int | None:
        """None if all of them and one more keep within `capacity` tokens, but for the risk.

        Otherwise how many steps from now they do not; `first` is looked at first. The risk: how
        many requests, as large as the newcomer by then, must go for what is above the capacity.
        """
        cell = _Cell(newcomer.survival, newcomer.age)
        cell.add(newcomer)
        room = capacity - self._fixed
        last = min(newcomer.left - 1, self._horizons[-1])
        for at in (min(first, last), *self._horizons, last):
            mean, variance = self._expected(at)
            more, more_variance = cell.expected(at)
            free, size = room - mean - more, newcomer.size + at
            variance += more_variance + self._phases
            victims = expected_victims(free, isqrt(variance), size)
            if victims > risk_in_a_million:
                more, less_variance = self._if_the_widest_stay(at)
                victims = expected_victims(free - more, isqrt(variance - less_variance), size)
                if victims > risk_in_a_million:
                    return at
        return None

    def _expected(self, at: int) -> tuple[int, int]:
        known = self._known.get(at)
        if known is None:
            parts = [cell.expected(at) for cell in self._cells.values()]
            known = sum(mean for mean, _ in parts), sum(variance for _, variance in parts)
            self._known[at] = known
        return known

    def _if_the_widest_stay(self, at: int) -> tuple[int, int]:
        """How much more the mean is, and how much less the variance, if those of whom least is
        known stay. A bound, and the better one where one large one makes the sum anything but
        normal.
        """
        if not self._cells:
            return 0, 0
        widest = max(self._cells.values(), key=lambda cell: cell.expected(at)[1])
        mean, variance = widest.expected(at)
        return widest.most(at) - mean, variance

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
