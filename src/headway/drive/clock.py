"""Time that moves only when told: for simulation, replay and tests."""

from __future__ import annotations


class VirtualClock:
    """Nanoseconds from `start_ns`, moved by whoever knows how long something takes."""

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = start_ns

    def now_ns(self) -> int:
        return self._now_ns

    def advance(self, duration_ns: int) -> None:
        """Raises ValueError for a negative duration: time does not run backwards."""
        if duration_ns < 0:
            raise ValueError(f"a clock cannot go back by {-duration_ns} ns")
        self._now_ns += duration_ns

    def advance_to(self, now_ns: int) -> None:
        """Move to `now_ns`, or stay where that is past already."""
        self._now_ns = max(self._now_ns, now_ns)
