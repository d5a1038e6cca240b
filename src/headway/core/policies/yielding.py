"""Prompts of tenants that ask for more than their share make way for those of the others."""

from __future__ import annotations

from headway.core.policies.prefill import Chunked
from headway.core.policies.shares import OVER, TenantShares
from headway.core.sequence import Sequence
from headway.core.step_builder import StepBuilder

_PARTS = 8
_OFTEN = 16


class Yielding(Chunked):
    """Cut to the budget, as `Chunked`; for tenants over their share to an eighth of it, so that no
    step is long when somebody else comes. And while a tenant of a smaller level has a prompt in the
    step, or is about to, prompts wait, but in every sixteenth step.
    """

    def __init__(
        self, shares: TenantShares, holds_decodes: bool, max_chunk_tokens: int, budget: int
    ) -> None:
        super().__init__(holds_decodes, max_chunk_tokens)
        self._shares = shares
        self._most = self._num_left = -(-budget // _PARTS)  # for those over their share
        self._taken_by: Sequence | None = None  # of the smallest level with a prompt in the step

    def order(
        self, running: list[Sequence], prompts: list[Sequence], num_waiting: int
    ) -> list[Sequence]:
        self._num_left, self._taken_by = self._most, None
        if not self._shares.has_ranks:
            return running
        prompts = [s for s in prompts if s.num_wanted_tokens() > 1]
        levels = {s.sequence_id: self._shares.level(s) for s in prompts}
        if len(set(levels.values())) < 2:
            return running
        return sorted(running, key=lambda s: levels.get(s.sequence_id, 0))

    def chunk(
        self, sequence: Sequence, first_position: int, num_wanted: int, step: StepBuilder
    ) -> int:
        num_tokens = super().chunk(sequence, first_position, num_wanted, step)
        if not (num_tokens and self._shares.has_ranks):
            return num_tokens
        level = self._shares.level(sequence)
        if step.index % _OFTEN and self._is_behind(sequence, level, step.makes_way_for):
            return 0
        if level == OVER:
            num_tokens = min(num_tokens, self._num_left)
            self._num_left -= num_tokens
        elif self._taken_by is None or level < self._shares.level(self._taken_by):
            self._taken_by = sequence
        return num_tokens

    def _is_behind(self, sequence: Sequence, level: int, coming: Sequence | None) -> bool:
        """Whether somebody of another tenant, of a smaller level, computes a prompt now."""
        return any(
            one.request.tenant != sequence.request.tenant and self._shares.level(one) < level
            for one in (self._taken_by, coming)
            if one is not None
        )
