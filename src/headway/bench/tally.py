"""What a load obeys, and what is known of it while it runs."""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.bench.outcome import Outcome

SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """`max_concurrency`: at most so many at once; others wait, and their clocks run.

    `stall_s`: without an event for so long a request has failed. `drain_s`: so long after the last
    arrival the rest is cut off; None: never.
    """

    max_concurrency: int | None = None
    stall_s: float = 600.0
    drain_s: float | None = None


@dataclass(slots=True)
class Tally:
    """What is known while it runs. Times in nanoseconds from the load's start."""

    outcomes: list[Outcome] = field(default_factory=list)
    num_sent: int = 0
    num_open: int = 0
    num_events: int = 0
    last_arrival_ns: int = 0
    ended_ns: int = 0
    is_cut: bool = False
    why_cut: str = ""

    @property
    def drain_ns(self) -> int:
        """From the last arrival to the last end."""
        return max(0, self.ended_ns - self.last_arrival_ns)
