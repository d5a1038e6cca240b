"""One decision: who computes what in the next forward pass."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from itertools import chain, repeat
from typing import NamedTuple

from headway.core.events import Aborted, Admitted, Preempted, Resumed, Retired, new_tuple
from headway.core.sequence import Sequence


class Blocker(enum.Enum):
    """Why a waiting sequence was not admitted in this step."""

    SLOTS = "slots"
    BLOCKS = "blocks"
    BUDGET = "budget"
    EVICTION = "eviction"  # this step preempted, so it admits nobody but for whom it did
    ADAPTER = "adapter"
    GRAMMAR = "grammar"
    TENANT = "tenant"
    STATIC_BATCH = "static_batch"
    PREFILL = "prefill"  # other prompts are under way, and it is not short beside them

    @property
    def bars_one(self) -> bool:
        """It concerns one sequence, so that those behind it may still be admitted."""
        return self in (Blocker.ADAPTER, Blocker.GRAMMAR, Blocker.TENANT, Blocker.PREFILL)


class Chunk(NamedTuple):
    """Tokens of one sequence in a step: positions [first_position, first_position + num_tokens).

    A decode is a chunk of one. `samples` is true when the chunk reaches the sequence's last token,
    so that the pass yields its next one. A driver may read `sequence` (token_ids, block_ids,
    request, sequence_id, index), never write to it.

    `block_ids` is the block table as of this decision: it may grow at its end, and stays as it is
    when the sequence loses its blocks while the step is in flight, which `sequence.block_ids` does
    not. Chunks of one step may be read in any order; steps must run in order of their index.
    """

    sequence: Sequence
    first_position: int
    num_tokens: int
    samples: bool
    block_ids: SequenceOf[int] = ()

    @property
    def is_decode(self) -> bool:
        return self.num_tokens == 1 and self.first_position >= self.sequence.num_prompt_tokens


@dataclass(frozen=True, slots=True, eq=False)
class Chunks:
    """Those of sequences that decode together, made when somebody looks; then those of others.
    Who looks at more of the sequences than who they are lets them catch up first."""

    sequences: tuple[Sequence, ...]  # the same object for as long as they are the same
    offsets: tuple[int, ...]  # each one's position, less the index of the step
    block_ids: tuple[SequenceOf[int], ...]
    index: int  # of the step
    others: tuple[Chunk, ...]
    catch_up: Callable[[], None]  # the sequences learn what earlier steps gave them
    sampled: SequenceOf[int] = ()  # what they compute, unless the sequences know that

    @property
    def firsts(self) -> list[int]:
        """The positions of those that decode together."""
        return [offset + self.index for offset in self.offsets]

    def __len__(self) -> int:
        return len(self.offsets) + len(self.others)

    def __iter__(self) -> Iterator[Chunk]:
        self.catch_up()
        fields = zip(self.sequences, self.firsts, repeat(1), repeat(True), self.block_ids)
        return chain(map(new_tuple, repeat(Chunk), fields), self.others)


def apart(chunks: Chunks | SequenceOf[Chunk]) -> tuple[SequenceOf[int], SequenceOf[Chunk]]:
    """The positions of sequences that decode together, and the chunks of others."""
    return (chunks.firsts, chunks.others) if isinstance(chunks, Chunks) else ((), chunks)


@dataclass(frozen=True, slots=True)
class Step:
    """One decision, with its reasons. Steps of one scheduler have consecutive indexes from 0."""

    index: int
    chunks: Chunks | tuple[Chunk, ...]
    expired: tuple[Aborted, ...] = ()  # whose time was up when this was decided
    admitted: tuple[Admitted, ...] = ()
    resumed: tuple[Resumed, ...] = ()
    preempted: tuple[Preempted, ...] = ()
    # Told by this decision: a static batch that an eviction, or the clock, emptied.
    retired: tuple[Retired, ...] = ()
    # Of the first in the queue that was not barred by a constraint; if all were, of the first.
    blocker: Blocker | None = None  # None when nobody waits or everybody was admitted
    blocked_sequence_id: int | None = None
    predicted_ns: int | None = None  # how long it should take, where that decided its prompts

    @property
    def num_tokens(self) -> int:
        others = self.chunks.others if isinstance(self.chunks, Chunks) else self.chunks
        num_others = sum([chunk.num_tokens for chunk in others]) if others else 0
        return len(self.chunks) - len(others) + num_others

    @property
    def num_prefill_tokens(self) -> int:
        return sum(
            count
            for sequence, first, count, _, _ in apart(self.chunks)[1]
            if count > 1 or first < sequence.num_prompt_tokens
        )


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a driver returns: a new token for each chunk that `samples`, in their order."""

    token_ids: SequenceOf[int] = ()


class BadStepResultError(ValueError):
    """A driver returned more or fewer tokens than there are chunks that sample."""
