"""Whether a waiting sequence that does not fit may be passed by those behind it."""

from __future__ import annotations

from headway.core.sequence import Sequence, SequenceStatus
from headway.core.step import Blocker

MAX_PASSED = 32  # at once: what a step looks at behind the first that is blocked is bounded


class Passing:
    """For `limit_ns` from when the first one passed it; 0: never.

    Only who lacks blocks, or has a whole prompt that the rest of the budget is too short for:
    everything else keeps all out. Whoever was preempted is not passed: blocks that newcomers take
    are those of its recompute.
    """

    def __init__(self, limit_ns: int) -> None:
        self._limit_ns = limit_ns

    def allows(self, sequence: Sequence, blocker: Blocker, now_ns: int, num_passed: int) -> bool:
        """Whether others may pass it now, as they pass `num_passed` before it."""
        if not self._limit_ns or num_passed >= MAX_PASSED:
            return False
        is_new, since_ns = sequence.status is SequenceStatus.WAITING, sequence.passed_since_ns
        is_in_time = since_ns is None or now_ns - since_ns < self._limit_ns
        return is_new and is_in_time and blocker in (Blocker.BLOCKS, Blocker.BUDGET)
