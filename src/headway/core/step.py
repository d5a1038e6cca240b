"""One decision: who computes what in the next forward pass."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field
from typing import NamedTuple

from headway.core.events import Aborted, Admitted, Preempted, Rejected, Resumed, Retired
from headway.core.sequence import Sequence


class Blocker(enum.Enum):
    """Why a waiting sequence was not admitted in this step."""

    SLOTS = "slots"
    BLOCKS = "blocks"
    BUDGET = "budget"
    EVICTION = "eviction"  # this step preempted somebody, so it admits nobody
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


@dataclass(frozen=True, slots=True)
class Step:
    """One decision, with its reasons. Steps of one scheduler have consecutive indexes from 0."""

    index: int
    chunks: tuple[Chunk, ...]
    expired: tuple[Aborted, ...] = ()  # whose time was up when this was decided
    admitted: tuple[Admitted, ...] = ()
    resumed: tuple[Resumed, ...] = ()
    preempted: tuple[Preempted, ...] = ()
    # Told by this decision: a static batch that an eviction, or the clock, emptied.
    retired: tuple[Retired, ...] = ()
    rejected: tuple[Rejected, ...] = ()
    # Of the first in the queue that was not barred by a constraint; if all were, of the first.
    blocker: Blocker | None = None  # None when nobody waits or everybody was admitted
    blocked_sequence_id: int | None = None
    predicted_ns: int | None = None  # how long it should take, where that decided its prompts

    @property
    def num_tokens(self) -> int:
        return sum(chunk.num_tokens for chunk in self.chunks)

    @property
    def num_decode_tokens(self) -> int:
        return self.num_tokens - self.num_prefill_tokens

    @property
    def num_prefill_tokens(self) -> int:
        return sum(
            count
            for sequence, first, count, _, _ in self.chunks
            if count > 1 or first < sequence.num_prompt_tokens
        )


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a driver returns: new token ids for every sequence whose chunk `samples`."""

    token_ids: Mapping[int, tuple[int, ...]] = field(default_factory=dict)


class BadStepResultError(ValueError):
    """A driver returned something else than one token for every chunk that samples."""


def sampled_tokens(step: Step, result: StepResult) -> Iterable[tuple[Sequence, tuple[int, ...]]]:
    """The new token of every chunk that samples. Raises BadStepResultError if one has not one."""
    sampling = [sequence for sequence, _, _, samples, _ in step.chunks if samples]
    token_ids = result.token_ids.get
    found = [token_ids(sequence.sequence_id, ()) for sequence in sampling]
    if sampling and {*map(len, found)} != {1}:
        bad, ids = next((s, ids) for s, ids in zip(sampling, found, strict=True) if len(ids) != 1)
        raise BadStepResultError(
            f"step {step.index}: sequence {bad.sequence_id} samples one token, "
            f"the result has {len(ids)}"
        )
    return zip(sampling, found, strict=True)
