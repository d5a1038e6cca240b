"""Real time, for the engine; core and drive may not read it themselves."""

from __future__ import annotations

import time


class RealClock:
    """CLOCK_MONOTONIC in nanoseconds: the same clock in every process of the machine."""

    def now_ns(self) -> int:
        return time.monotonic_ns()
