"""What preemptions cost one sequence: a fold over its events, the same for every driver."""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.events import Preempted, Resumed


@dataclass(slots=True, eq=False)
class PreemptionBill:
    """Tokens: of all that were lost and are back in line, what is computed again and what is not.

    `lost_ns` is from each eviction to the next token, or to the end: the queue, the recompute, and
    what was left of a prompt that was not done.
    """

    num_preemptions: int = 0
    num_lost_tokens: int = 0
    num_recomputed_tokens: int = 0
    num_refunded_tokens: int = 0  # by the prefix cache
    lost_ns: int = 0
    num_lost_latest: int = 0
    _since_ns: int | None = None

    def preempted(self, event: Preempted, now_ns: int) -> None:
        self.num_preemptions = event.num_preemptions
        self.num_lost_tokens += event.num_lost_tokens
        self.num_lost_latest = event.num_lost_tokens
        if self._since_ns is None:
            self._since_ns = now_ns

    def resumed(self, event: Resumed) -> None:
        self.num_recomputed_tokens += event.num_recomputed_tokens
        self.num_refunded_tokens += self.num_lost_latest - event.num_recomputed_tokens

    def got_on(self, now_ns: int) -> int:
        """It got a token, or ended. Returns the nanoseconds that this closes the account with."""
        if self._since_ns is None:
            return 0
        span_ns, self._since_ns = now_ns - self._since_ns, None
        self.lost_ns += span_ns
        return span_ns
