"""The scheduler's state in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from headway.core.step import Blocker


class SchedulerStats(NamedTuple):
    """The state between two steps. Blocks: total = held + cached + blank."""

    num_running: int
    num_waiting: int
    num_total_blocks: int
    num_held_blocks: int
    num_cached_blocks: int  # free, but findable by the prefix cache
    num_resident_tokens: int  # computed tokens of the running; a shared block counts for each
    num_backlog_tokens: int  # still to compute: of the waiting, and of prefills under way
    waiting_reasons: Mapping[Blocker, int]
