"""How long the waiting have waited for each thing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from headway.core.step import Blocker
from headway.insight.explain.report import STEP


class Waits:
    """Time by reason, of a queue whose members all wait for the same at any time.

    What a sequence waited for lies between two snapshots: nothing is done for each of them.
    """

    def __init__(self) -> None:
        self._sums: dict[str, int] = {}
        self._reason = STEP
        self._since_ns = 0

    def advance(self, now_ns: int) -> None:
        """Until now it was what it is."""
        if now_ns > self._since_ns:
            sums, reason = self._sums, self._reason
            sums[reason] = sums.get(reason, 0) + now_ns - self._since_ns
            self._since_ns = now_ns

    def change(self, reason: str | None, at_ns: int) -> None:
        """From then on it is this; None: nobody was told that he has to wait."""
        self.advance(at_ns)
        self._reason = reason or STEP

    def snapshot(self, now_ns: int) -> dict[str, int]:
        self.advance(now_ns)
        return dict(self._sums)


def since(now: Mapping[str, int], before: Mapping[str, int]) -> dict[str, int]:
    """What came between two snapshots."""
    spans = {reason: ns - before.get(reason, 0) for reason, ns in now.items()}
    return {reason: ns for reason, ns in spans.items() if ns}


class TenantQueues:
    """Who waits for what: all for what the scheduler says of the first, but for those whose tenant
    runs as many as it may (`max_tenant_seqs`; 0 is no limit, and one queue for all)."""

    def __init__(self, max_tenant_seqs: int) -> None:
        self._most = max_tenant_seqs
        self._everybody = Waits()
        self._by_tenant: dict[str, Waits] = {}
        self._num_waiting: Counter[str] = Counter()
        self._num_running: Counter[str] = Counter()

    def joined(self, tenant: str) -> Waits:
        """One of its sequences waits; with whom."""
        if not self._most:
            return self._everybody
        self._num_waiting[tenant] += 1
        if tenant not in self._by_tenant:
            self._by_tenant[tenant] = Waits()
        return self._by_tenant[tenant]

    def went(self, tenant: str) -> None:
        """It waits no more."""
        if self._most and _one_less(self._num_waiting, tenant):
            del self._by_tenant[tenant]

    def entered(self, tenant: str) -> None:
        """One of its sequences got a slot."""
        if self._most:
            self._num_running[tenant] += 1

    def left(self, tenant: str) -> None:
        if self._most:
            _one_less(self._num_running, tenant)

    def decided(self, blocker: str | None, at_ns: int) -> None:
        """A step was decided; those who wait now go on until the next for this reason."""
        if not self._most:
            self._everybody.change(blocker, at_ns)
            return
        for tenant, waits in self._by_tenant.items():
            is_full = self._num_running[tenant] >= self._most
            waits.change(Blocker.TENANT.value if is_full and blocker else blocker, at_ns)


def _one_less(counts: Counter[str], name: str) -> bool:
    """True when it was the last, which leaves nothing behind."""
    counts[name] -= 1
    if counts[name] > 0:
        return False
    del counts[name]
    return True
