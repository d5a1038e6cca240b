"""What one request went through, as times; a fold over the engine's events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTimings:
    """Nanoseconds; of n sequences the first token is the earliest, the queue time the longest."""

    queue_ns: int | None = None  # None: never admitted
    time_to_first_token_ns: int | None = None
    generation_ns: int | None = None  # first token to last
    mean_itl_ns: int | None = None
    num_output_tokens: int = 0
    num_preemptions: int = 0
    num_recomputed_tokens: int = 0
    blocked_ns: Mapping[str, int] = field(default_factory=dict)  # by Blocker value, while queued
