"""Who had what others waited for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headway.core.step import Blocker
from headway.insight.explain.life import Life
from headway.insight.explain.prompt_steps import HANDFUL, PromptSteps
from headway.insight.explain.report import Holder, Wait

Windows = Sequence[tuple[int, int]]
_BY_TIME = {Blocker.SLOTS.value, Blocker.STATIC_BATCH.value, Blocker.TENANT.value}
_BY_BLOCKS = {Blocker.BLOCKS.value, Blocker.EVICTION.value}
_BY_PROMPTS = {Blocker.BUDGET.value, Blocker.PREFILL.value}


class Residents:
    """Those that had a slot at any time in some windows; found once for all reasons to wait."""

    def __init__(
        self, life: Life, windows: Windows, others: Iterable[Life], now_ns: int, block_size: int
    ) -> None:
        self._life = life
        self._windows = windows
        self._block_size = block_size
        self._found = [
            (other, held_ns)
            for other in others
            if other is not life
            and (held_ns := sum(other.residence_ns(a, b, now_ns) for a, b in windows))
        ]

    def waits(self, waited: dict[str, int], steps: PromptSteps) -> tuple[Wait, ...]:
        """Each with who held it, the longest first."""
        ordered = sorted(waited.items(), key=lambda item: -item[1])
        return tuple(
            Wait(reason=reason, ns=ns, held_by=self._held_by(reason, steps))
            for reason, ns in ordered
            if ns
        )

    def _held_by(self, reason: str, steps: PromptSteps) -> tuple[Holder, ...]:
        if reason in _BY_PROMPTS:
            return steps.holders(self._windows, self._life.request_id)
        if reason in _BY_BLOCKS:
            return self._largest(by_blocks=True)
        if reason in _BY_TIME:
            own = self._life.tenant if reason == Blocker.TENANT.value else None
            return self._largest(by_blocks=False, tenant=own)
        return ()

    def _largest(self, *, by_blocks: bool, tenant: str | None = None) -> tuple[Holder, ...]:
        """By time, or by time and blocks; sequences of one request together."""
        sums: dict[str, tuple[int, int, int]] = {}
        for other, held_ns in self._found:
            if tenant is not None and other.tenant != tenant:
                continue
            blocks = -(-other.num_blocks_for // self._block_size)
            weight = held_ns * blocks if by_blocks else held_ns
            had_weight, had_ns, had_blocks = sums.get(other.request_id, (0, 0, 0))
            sums[other.request_id] = (had_weight + weight, had_ns + held_ns, had_blocks + blocks)
        ordered = sorted(sums.items(), key=lambda item: -item[1][0])
        return tuple(
            Holder(request_id=name, held_ns=held_ns, blocks=blocks if by_blocks else 0)
            for name, (_, held_ns, blocks) in ordered[:HANDFUL]
        )
