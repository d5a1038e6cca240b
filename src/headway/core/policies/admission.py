"""How much KV memory a sequence needs before it may start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from headway.core.blocks import BlockPool
from headway.core.policies.forecast import LengthForecast
from headway.core.request import Request
from headway.core.sequence import Sequence
from headway.core.step import Blocker


class Admission(Protocol):
    """Sizes are tokens; the scheduler turns them into blocks.

    Told of every sequence that gets a slot and loses it.
    """

    def num_tokens_taken(self, sequence: Sequence, num_tokens: int) -> int:
        """Tokens whose blocks it takes at admission, with `num_tokens` computed by this step."""
        ...

    def num_tokens_free(self, sequence: Sequence, num_tokens: int) -> int:
        """Tokens whose blocks must be there for it at admission; never less than taken."""
        ...

    def num_tokens_ever(self, request: Request) -> int:
        """Tokens that the whole pool must be able to hold for the request to be accepted."""
        ...

    def refuses(self, sequence: Sequence) -> bool:
        """It has said no already, and nothing has changed since: nothing else need be asked."""
        return False

    def objection(
        self,
        sequence: Sequence,
        pool: BlockPool,
        num_shared: int,
        num_steps: int,
        beside: Mapping[int, Sequence] | None = None,
    ) -> Blocker | None:
        """Why the sequence, which fits for now, may not start; None if it may.

        BLOCKS: the pool will not do for it and all that run, until one of them is gone. BUDGET: not
        in this step. `num_shared`: of its blocks, those that others hold too. `num_steps`: decided
        before this one. `beside`: who counts, by id, where not all that run and nobody else: those
        that make way for it do not. Asked only while others run, and not only of who then enters.
        """
        return None

    def entered(self, sequence: Sequence) -> None:
        """The sequence got a slot, and its first blocks."""
        return

    def left(self, sequence: Sequence) -> None:
        """The sequence lost its slot: it was preempted or has ended."""
        return


class OnDemand(Admission):
    """Blocks as they are needed; never reads max_tokens. Pays with preemption when all grow."""

    def __init__(self, reserve_full_isl: bool) -> None:
        self._reserve_full_isl = reserve_full_isl

    def num_tokens_taken(self, sequence: Sequence, num_tokens: int) -> int:
        return num_tokens

    def num_tokens_free(self, sequence: Sequence, num_tokens: int) -> int:
        return sequence.num_tokens if self._reserve_full_isl else num_tokens

    def num_tokens_ever(self, request: Request) -> int:
        return request.num_prompt_tokens


class Sparing(OnDemand):
    """On demand, but beside others a sequence starts where there is room for what it will say on
    the mean, and for a block for each of them.

    From one end to the next those who run say as much as one of them does in all, and each may be
    a token away from its next block.
    """

    def __init__(self, reserve_full_isl: bool, forecast: LengthForecast, block_size: int) -> None:
        super().__init__(reserve_full_isl)
        self._forecast = forecast
        self._block_size = block_size
        self._num_running = 0

    def objection(
        self,
        sequence: Sequence,
        pool: BlockPool,
        num_shared: int,
        num_steps: int,
        beside: Mapping[int, Sequence] | None = None,
    ) -> Blocker | None:
        if beside is not None:
            return None  # the others make way when memory ends
        num_tokens = sequence.num_tokens + self._forecast.num_tokens_left(sequence)
        num_blocks = -(-num_tokens // self._block_size) - num_shared + self._num_running
        return Blocker.BLOCKS if num_blocks > pool.num_free else None

    def entered(self, sequence: Sequence) -> None:
        self._num_running += 1

    def left(self, sequence: Sequence) -> None:
        self._num_running -= 1


@dataclass(frozen=True, slots=True)
class Reserve(Admission):
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
