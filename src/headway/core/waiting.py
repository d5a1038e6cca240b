"""The waiting queue, and how much it has to compute."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from headway.core.constraints import TenantSlots
from headway.core.policies.ordering import Ordering
from headway.core.prefix import PrefixCache
from headway.core.sequence import Sequence


@dataclass(slots=True, eq=False)
class WaitingQueue:
    """Whoever has no slot, in the ordering's order; what each still needs is in the backlog."""

    ordering: Ordering
    prefix: PrefixCache
    block_size: int
    tenant_slots: TenantSlots | None
    num_backlog_tokens: int = 0  # still needed, without what the cache had when they queued

    def __len__(self) -> int:
        return len(self.ordering)

    def in_order(self, now_ns: int) -> Iterable[Sequence]:
        """In the order in which to admit them; the queue must not change meanwhile."""
        return self.ordering.waiting(now_ns)

    def first_id(self, now_ns: int) -> int:
        """Of the first in that order; there must be one."""
        return next(iter(self.ordering.waiting(now_ns))).sequence_id

    def num_steps_in_order(self, decoding: SequenceOf[Sequence], num_steps: int) -> int:
        """Of so many steps in which these decode, those in which the order stays as it is."""
        most = self.ordering.num_steps_in_order(decoding)
        return num_steps if most is None else min(num_steps, most)

    def add(self, sequence: Sequence, now_ns: int) -> None:
        """A sequence arrived."""
        self._queued(sequence)
        self.ordering.enqueue(sequence, now_ns)

    def take_back(self, sequence: Sequence, now_ns: int) -> None:
        """A sequence was preempted."""
        self._queued(sequence)
        self.ordering.requeue(sequence, now_ns)

    def _queued(self, sequence: Sequence) -> None:
        """Before the ordering is told: it may want to know how much there is to compute."""
        num_cached_tokens = len(self.prefix.find(sequence)) * self.block_size
        # What is in flight for a preempted sequence will be one of its tokens when it runs again.
        num_tokens = max(sequence.num_tokens, sequence.num_lost_tokens + 1)
        sequence.num_queued_tokens = num_tokens - num_cached_tokens
        self.num_backlog_tokens += sequence.num_queued_tokens
        if self.tenant_slots is not None:
            self.tenant_slots.queued(sequence)

    def remove(self, sequence: Sequence) -> None:
        """A sequence was admitted, or ended while it waited."""
        self.ordering.remove(sequence)
        self.num_backlog_tokens -= sequence.num_queued_tokens
        sequence.num_queued_tokens = 0
        if self.tenant_slots is not None:
            self.tenant_slots.dequeued(sequence)
