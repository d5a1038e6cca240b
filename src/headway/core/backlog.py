"""How much is left to compute, counted as sequences come and go."""

from __future__ import annotations

from collections.abc import Iterable

from headway.core.sequence import Sequence


class Backlog:
    """Tokens that the waiting still need, without what the prefix cache had when they queued."""

    def __init__(self) -> None:
        self.num_waiting_tokens = 0

    def queued(self, sequence: Sequence, num_cached_tokens: int) -> None:
        # What is in flight for a preempted sequence will be one of its tokens when it runs again.
        num_tokens = sequence.num_tokens + sequence.num_pending_tokens
        sequence.num_queued_tokens = num_tokens - num_cached_tokens
        self.num_waiting_tokens += sequence.num_queued_tokens

    def left(self, sequence: Sequence) -> None:
        """The sequence was admitted or ended while it waited."""
        self.num_waiting_tokens -= sequence.num_queued_tokens
        sequence.num_queued_tokens = 0


def num_running_tokens(running: Iterable[Sequence]) -> int:
    """Tokens that the running need before each yields its next; a decode needs none."""
    return sum(sequence.num_prefill_tokens_left for sequence in running)
