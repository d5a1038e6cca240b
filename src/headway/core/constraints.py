"""What may bar a waiting sequence that would otherwise get its turn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as SequenceOf
from typing import Protocol

from headway.core.config import SchedulerConfig
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
    """At most so many running sequences of each tenant."""

    def __init__(self, max_tenant_seqs: int) -> None:
        self._most = max_tenant_seqs
        self._num_running: Counter[str] = Counter()

    def bars(self, sequence: Sequence) -> Blocker | None:
        is_full = self._num_running[sequence.request.tenant] >= self._most
        return Blocker.TENANT if is_full else None

    def entered(self, sequence: Sequence) -> None:
        self._num_running[sequence.request.tenant] += 1

    def left(self, sequence: Sequence) -> None:
        tenant = sequence.request.tenant
        self._num_running[tenant] -= 1
        if not self._num_running[tenant]:
            del self._num_running[tenant]


def with_own_constraints(
    config: SchedulerConfig, constraints: SequenceOf[Constraint]
) -> tuple[Constraint, ...]:
    """Those that the configuration asks for, and these."""
    if not config.max_tenant_seqs:
        return tuple(constraints)
    return TenantSlots(config.max_tenant_seqs), *constraints
