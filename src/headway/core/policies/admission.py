"""How much KV memory a sequence needs before it may start."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from headway.core.request import Request
from headway.core.sequence import Sequence


class Admission(Protocol):
    """Sizes are tokens; the scheduler turns them into blocks."""

    def num_tokens_taken(self, sequence: Sequence, num_tokens: int) -> int:
        """Tokens whose blocks it takes at admission, with `num_tokens` computed by this step."""
        ...

    def num_tokens_free(self, sequence: Sequence, num_tokens: int) -> int:
        """Tokens whose blocks must be there for it at admission; never less than taken."""
        ...

    def num_tokens_ever(self, request: Request) -> int:
        """Tokens that the whole pool must be able to hold for the request to be accepted."""
        ...


@dataclass(frozen=True, slots=True)
class OnDemand:
    """Blocks as they are needed; never reads max_tokens. Pays with preemption when all grow."""

    reserve_full_isl: bool

    def num_tokens_taken(self, sequence: Sequence, num_tokens: int) -> int:
        return num_tokens

    def num_tokens_free(self, sequence: Sequence, num_tokens: int) -> int:
        return sequence.num_tokens if self.reserve_full_isl else num_tokens

    def num_tokens_ever(self, request: Request) -> int:
        return request.num_prompt_tokens


@dataclass(frozen=True, slots=True)
class Reserve:
    """Orca's rule: all that the sequence may ever hold, before it starts. Never preempts."""

    max_model_len: int

    def num_tokens_taken(self, sequence: Sequence, num_tokens: int) -> int:
        return self.num_tokens_ever(sequence.request)

    def num_tokens_free(self, sequence: Sequence, num_tokens: int) -> int:
        return self.num_tokens_ever(sequence.request)

    def num_tokens_ever(self, request: Request) -> int:
        most = request.max_output_tokens
        if most is None:
            return self.max_model_len
        return min(request.num_prompt_tokens + most, self.max_model_len)
