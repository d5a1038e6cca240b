"""How much of a prompt goes into a step, and whether decodes may ride along."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headway.core.sequence import Sequence
from headway.core.step import Blocker, Step
from headway.core.step_builder import StepBuilder

if TYPE_CHECKING:  # it imports the policies
    from headway.core.stride import Stride


class PrefillPlacement(Protocol):
    """Asked while a step is decided; told of it afterwards, if it wants to learn."""

    holds_decodes: bool  # decodes are placed only in a step that finds no prompt to compute

    def chunk(
        self, sequence: Sequence, first_position: int, num_wanted: int, step: StepBuilder
    ) -> int:
        """How many of the tokens that it wants to place in the step now; 0 for none.

        Asked once for each running sequence that wants more than one, and for each waiting one
        that comes up for admission.
        """
        ...

    def first_chunk(self, num_wanted: int, budget: int) -> int:
        """How many of the tokens that it wants a sequence would have of a whole step's budget."""
        ...

    def order(
        self, running: list[Sequence], prompts: list[Sequence], num_waiting: int, step: StepBuilder
    ) -> list[Sequence]:
        """A step begins: the running, in their order of service, in the order to place them.

        `prompts`: whoever of all that run may have more than one token to compute, in no order.
        Who is not to be placed is noted in `step.left_out`.
        """
        return running

    def bars(self, sequence: Sequence) -> Blocker | None:
        """Why a waiting sequence is passed over in this step; None if it may be admitted."""
        return None

    def finish(
        self, step: StepBuilder, try_grow: Callable[[Sequence, int], bool]
    ) -> list[Sequence]:
        """Place what was held back for the waiting; returns whose chunks have grown.

        `try_grow`: gets a sequence blocks for so many tokens more, if that evicts nobody.
        """
        return []

    def launched(self, step: Step, now_ns: int) -> None:
        """This was decided. Once for each step that is not of a stride."""
        return

    def completed(self, step: Step, now_ns: int | None) -> None:
        """It ended then, and did not fail."""
        return

    def took(self, stride: Stride, start_ns: int, ends_ns: SequenceOf[int]) -> None:
        """Its first steps were taken, and ended then."""
        return


class Chunked(PrefillPlacement):
    """Cut to the budget, and to a cap where one is set.

    With `holds_decodes` a step with a prompt in it has no decodes, as in early engines: everyone
    else stalls. Without, prompts and decodes share a step.
    """

    def __init__(self, holds_decodes: bool, max_chunk_tokens: int) -> None:
        self.holds_decodes = holds_decodes
        self._max_chunk_tokens = max_chunk_tokens

    def chunk(
        self, sequence: Sequence, first_position: int, num_wanted: int, step: StepBuilder
    ) -> int:
        if num_wanted > self._max_chunk_tokens:
            num_wanted = self._max_chunk_tokens
        return num_wanted if num_wanted < step.tokens_left else step.tokens_left

    def first_chunk(self, num_wanted: int, budget: int) -> int:
        return min(num_wanted, self._max_chunk_tokens, budget)


@dataclass(frozen=True, slots=True)
class Whole(PrefillPlacement):
    """A prompt is computed in one step or waits for one that has room for it."""

    holds_decodes: bool

    def chunk(
        self, sequence: Sequence, first_position: int, num_wanted: int, step: StepBuilder
    ) -> int:
        return num_wanted if num_wanted <= step.tokens_left else 0

    def first_chunk(self, num_wanted: int, budget: int) -> int:
        return num_wanted if num_wanted <= budget else 0
