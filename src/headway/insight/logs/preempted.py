"""The line that Headway writes of a preemption, and what is read from it.

Preempted cmpl-7-0 for cmpl-3-0: 412 tokens lost, free blocks 0 -> 26, its preemption no. 2
… no. 2; not told since the last such line: 37 preemptions, 12,345 tokens lost
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from headway.core.events import Preempted

MARK = "Preempted "
_LINE = re.compile(r"Preempted (\S{1,300}) for \S{1,300}: [\d,]{1,15} tokens lost, free blocks \d")


@dataclass(slots=True)
class Untold:
    """Preemptions that had no line of their own."""

    number: int = 0
    tokens: int = 0

    def __str__(self) -> str:
        plural = "" if self.number == 1 else "s"
        return f"{self.number:,} preemption{plural}, {self.tokens:,} tokens lost"


def preemption_line(event: Preempted, beneficiary: str, untold: Untold) -> str:
    """Who lost its blocks, to whom, and what that cost."""
    is_own = event.beneficiary_id == event.sequence_id
    line = (
        f"{MARK}{event.request_id} for {'itself' if is_own else beneficiary}: "
        f"{event.num_lost_tokens:,} tokens lost, free blocks {event.num_free_blocks_before} -> "
        f"{event.num_free_blocks_after}, its preemption no. {event.num_preemptions}"
    )
    return f"{line}; not told since the last such line: {untold}" if untold.number else line


def victim_of(text: str) -> str | None:
    """The request that a log's line says was evicted; None for another line."""
    match = _LINE.search(text)
    return match[1] if match else None
