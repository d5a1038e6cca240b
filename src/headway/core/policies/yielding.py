"""Prompts of tenants that have or ask for more than their share make way for those of others."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from typing import TYPE_CHECKING

from headway.core.policies.prefill import Chunked
from headway.core.policies.shares import AHEAD, MODEST, OVER, TenantShares
from headway.core.sequence import Sequence
from headway.core.step_builder import StepBuilder

if TYPE_CHECKING:  # it imports the policies
    from headway.core.stride import Stride

_PARTS = {AHEAD: 4, OVER: 8}
_TOGETHER = 4  # one in so many tokens of a step is for whole prompts beside each other
_MOST_HELD = 15
_EVERY = 2  # steps: in one of so many decodes may be left out


class Yielding(Chunked):
    """Cut to the budget, as `Chunked`; for tenants that have more than their share of what is taken
    to a quarter of it, and for those over their share to an eighth, so that no step is long when
    somebody else comes. And while a tenant of a smaller level has a prompt in the step, or is about
    to, prompts wait, for fifteen steps in a row at most.

    Nor is a step with a modest tenant's prompt longer than it must be: tenants over their share do
    not decode in it, unless they did not in the step before; and a whole prompt goes beside another
    only if both have room in a quarter of the budget. Else it has the next step.
    """

    def __init__(
        self, shares: TenantShares, holds_decodes: bool, max_chunk_tokens: int, budget: int
    ) -> None:
        super().__init__(holds_decodes, max_chunk_tokens)
        self._shares = shares
        self._most = {level: -(-budget // part) for level, part in _PARTS.items()}
        self._most_whole = -(-budget // _TOGETHER)
        self._num_cut = self._num_whole = 0  # tokens of such prompts in this step
        self._taken_by: Sequence | None = None  # of the smallest level with a prompt in the step
        self._holds = False  # somebody waits in this step
        self._num_held = 0  # steps in a row in which somebody has waited
        self._left_out_at = -_EVERY  # index of the latest step without some of the decodes

    def order(
        self, running: list[Sequence], prompts: list[Sequence], num_waiting: int, step: StepBuilder
    ) -> list[Sequence]:
        self._num_cut, self._num_whole, self._taken_by = 0, 0, None
        self._num_held, self._holds = self._num_held + 1 if self._holds else 0, False
        if not self._shares.has_ranks:
            return running
        prompts = [s for s in prompts if s.num_wanted_tokens() > 1]
        levels = {s.sequence_id: self._shares.level(s) for s in prompts}
        coming = step.makes_way_for
        if MODEST in levels.values() or (coming and self._shares.level(coming) == MODEST):
            running = self._leave_out_decodes(running, step)
        if len(set(levels.values())) < 2 or self._num_held >= _MOST_HELD:
            return running
        self._holds = True
        return sorted(running, key=lambda s: levels.get(s.sequence_id, 0))

    def _leave_out_decodes(self, running: list[Sequence], step: StepBuilder) -> list[Sequence]:
        """Of those over their share; the others."""
        if step.index - self._left_out_at < _EVERY:
            return running
        step.left_out = [s for s in running if s.is_prefilled and self._shares.is_over(s)]
        if not step.left_out:
            return running
        self._left_out_at = step.index
        left_out = {s.sequence_id for s in step.left_out}
        return [s for s in running if s.sequence_id not in left_out]

    def chunk(
        self, sequence: Sequence, first_position: int, num_wanted: int, step: StepBuilder
    ) -> int:
        num_tokens = super().chunk(sequence, first_position, num_wanted, step)
        if not (num_tokens and self._shares.has_ranks):
            return num_tokens
        level = self._shares.level(sequence)
        if self._num_held < _MOST_HELD and self._is_behind(sequence, level, step.makes_way_for):
            self._holds = True
            return 0
        if level in self._most:
            num_tokens = min(num_tokens, max(0, self._most[level] - self._num_cut))
            self._num_cut += num_tokens
        elif level == MODEST:
            if 0 < self._num_whole > self._most_whole - num_tokens:
                return 0
            self._num_whole += num_tokens if num_tokens == num_wanted else 0
        taken_by = self._taken_by
        if level != OVER and (taken_by is None or level < self._shares.level(taken_by)):
            self._taken_by = sequence
        return num_tokens

    def took(self, stride: Stride, start_ns: int, ends_ns: SequenceOf[int]) -> None:
        self._holds = False  # nobody waited in these

    def _is_behind(self, sequence: Sequence, level: int, coming: Sequence | None) -> bool:
        """Whether somebody of another tenant, of a smaller level, computes a prompt now."""
        return any(
            one.request.tenant != sequence.request.tenant and self._shares.level(one) < level
            for one in (self._taken_by, coming)
            if one is not None
        )
