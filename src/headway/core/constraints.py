"""What may bar a waiting sequence that would otherwise get its turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Protocol

from headway.core.sequence import Sequence
from headway.core.step import Blocker


class Constraint(Protocol):
    """An adapter not loaded, a grammar not compiled, a tenant at its cap.

    A barred sequence is passed over, not waited for, and holds no blocks. Asked once for every
    sequence that comes up for admission; told when one gets a slot and when it loses it.
    """

    def bars(self, sequence: Sequence) -> Blocker | None:
        """Why the sequence may not be admitted in this step; None if it may."""
        ...

    def entered(self, sequence: Sequence) -> None:
        """The sequence got a slot."""
        ...

    def left(self, sequence: Sequence) -> None:
        """The sequence lost its slot: it ended or was preempted."""
        ...


class TenantSlots:
    """At most so many running sequences of each tenant.

    Counts the waiting, too, so that nobody walks through a long queue of those that are barred.
    """

    def __init__(self, max_tenant_seqs: int) -> None:
        self._most = max_tenant_seqs
        self._num_running: Counter[str] = Counter()
        self._num_waiting: Counter[str] = Counter()

    def bars(self, sequence: Sequence) -> Blocker | None:
        is_full = self._num_running[sequence.request.tenant] >= self._most
        return Blocker.TENANT if is_full else None

    def entered(self, sequence: Sequence) -> None:
        self._num_running[sequence.request.tenant] += 1

    def left(self, sequence: Sequence) -> None:
        _one_less(self._num_running, sequence.request.tenant)

    def queued(self, sequence: Sequence) -> None:
        """The sequence waits."""
        self._num_waiting[sequence.request.tenant] += 1

    def dequeued(self, sequence: Sequence) -> None:
        """The sequence waits no more."""
        _one_less(self._num_waiting, sequence.request.tenant)

    def num_open(self, num_unseen: int, seen: Mapping[str, int]) -> int:
        """Of so many of the waiting, all but those `seen` of each tenant: how many are not barred.

        Costs as much as there are tenants that run.
        """
        for tenant, num_running in self._num_running.items():
            if num_running >= self._most:
                num_unseen -= self._num_waiting.get(tenant, 0) - seen.get(tenant, 0)
        return num_unseen


def _one_less(counts: Counter[str], name: str) -> None:
    counts[name] -= 1
    if not counts[name]:
        del counts[name]
