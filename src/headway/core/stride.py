"""Steps to come that decide nothing new: every running sequence decodes one token in each."""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Stride:
    """Up to `max_num_steps` steps, the first of which has the index `first_index`.

    Valid until the scheduler is told anything else. Arrivals and time limits are not in it: no
    step of it may begin when one of those is due.
    """

    first_index: int
    sequences: tuple[Sequence, ...]
    max_num_steps: int

    @property
    def num_attended(self) -> int:
        """Tokens that the decodes of the first step attend, themselves among them."""
        return sum(sequence.num_computed_tokens + 1 for sequence in self.sequences)
