"""One decision: who computes what in the next forward pass."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from headway.core.events import Admitted, Preempted, Rejected, Resumed, Retired
from headway.core.sequence import Sequence


class Blocker(enum.Enum):
    """Why the head of the queue was not admitted in this step."""

    SLOTS = "slots"
    BLOCKS = "blocks"
    BUDGET = "budget"
    EVICTION = "eviction"  # this step preempted somebody, so it admits nobody
    ADAPTER = "adapter"
    GRAMMAR = "grammar"
    TENANT = "tenant"
    STATIC_BATCH = "static_batch"


@dataclass(frozen=True, slots=True)
class Chunk:
    """The tokens of one sequence in a step: positions [first_position, first_position + num_tokens).

    A decode is a chunk of one. `samples` is true when the chunk reaches the sequence's last token,
    so that the pass yields its next one. A driver may read `sequence` (token_ids, block_ids,
    request, sequence_id, index), never write to it.
    """

    sequence: Sequence
    first_position: int
    num_tokens: int
    samples: bool


@dataclass(frozen=True, slots=True)
class Step:
    """One decision, with its reasons. Steps of one scheduler have consecutive indexes from 0."""

    index: int
    chunks: tuple[Chunk, ...]
    admitted: tuple[Admitted, ...] = ()
    resumed: tuple[Resumed, ...] = ()
    preempted: tuple[Preempted, ...] = ()
    retired: tuple[Retired, ...] = ()  # ended while deciding, for example alone and out of blocks
    rejected: tuple[Rejected, ...] = ()
    blocker: Blocker | None = None  # None when nobody waits or everybody was admitted
    blocked_sequence_id: int | None = None  # the head of the queue, where there is a blocker

    @property
    def num_tokens(self) -> int:
        return sum(chunk.num_tokens for chunk in self.chunks)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What a driver returns: new token ids for every sequence whose chunk `samples`."""

    token_ids: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
