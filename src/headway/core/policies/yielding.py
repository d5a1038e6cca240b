"""Prompts of tenants over their share make way for those of the others."""

from __future__ import annotations

from headway.core.policies.prefill import PrefillPlacement
from headway.core.policies.shares import TenantShares
from headway.core.sequence import Sequence
from headway.core.step_builder import StepBuilder

_PARTS = 8
_OFTEN = 16


class Yielding(PrefillPlacement):
    """Cut to the budget, as `Chunked`; for tenants over their share to an eighth of it, so that no
    step is long when somebody else comes. And while somebody else has a prompt in the step, or is
    about to, prompts of those over their share wait, but in every sixteenth step.
    """

    def __init__(
        self, shares: TenantShares, holds_decodes: bool, max_chunk_tokens: int, budget: int
    ) -> None:
        self.holds_decodes = holds_decodes
        self._shares = shares
        self._max_chunk_tokens = max_chunk_tokens
        self._most = self._num_left = -(-budget // _PARTS)  # for those over their share
        self._taken_by: str | None = None  # the latest tenant not over its share with a prompt

    def order(
        self, running: list[Sequence], prompts: list[Sequence], num_waiting: int
    ) -> list[Sequence]:
        self._num_left, self._taken_by = self._most, None
        if not self._shares.has_ranks:
            return running
        prompts = [s for s in prompts if s.num_wanted_tokens() > 1]
        late = {s.sequence_id for s in prompts if self._shares.is_over(s)}
        if not late or len(late) == len(prompts):
            return running
        return sorted(running, key=lambda s: s.sequence_id in late)

    def chunk(
        self, sequence: Sequence, first_position: int, num_wanted: int, step: StepBuilder
    ) -> int:
        num_tokens = min(num_wanted, self._max_chunk_tokens, step.tokens_left)
        if not self._shares.has_ranks or not self._shares.is_over(sequence):
            self._taken_by = sequence.request.tenant if num_tokens else self._taken_by
            return num_tokens
        is_taken = self._taken_by not in (None, sequence.request.tenant)
        if (is_taken or step.makes_way) and step.index % _OFTEN:
            return 0
        num_tokens = min(num_tokens, self._num_left)
        self._num_left -= num_tokens
        return num_tokens

    def first_chunk(self, num_wanted: int, budget: int) -> int:
        return min(num_wanted, self._max_chunk_tokens, budget)
