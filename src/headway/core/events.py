"""What happened, as facts: the core returns these, everything else folds over them.

Every accepted sequence ends in exactly one terminal event: `Retired` or `Aborted`; a request that
was refused at the door has `Rejected` as its only event.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, NamedTuple

from headway.core.request import FinishReason

new_tuple = tuple.__new__  # what a NamedTuple's own constructor calls, in less than half the time


class RefusalCause(enum.Enum):
    """Why a request was never queued."""

    NEVER_FITS = "never_fits"
    ID_IN_USE = "id_in_use"


class AbortCause(enum.Enum):
    """Who or what withdrew a sequence."""

    CLIENT = "client"
    QUEUE_TIME = "queue_time"
    RUN_TIME = "run_time"
    DEADLINE = "deadline"
    UNREACHABLE = "deadline_unreachable"  # it would pass before the end, however soon it begins
    ENGINE = "engine"  # the engine died, or ended with this undone


@dataclass(frozen=True, slots=True)
class Queued:
    """A sequence entered the waiting queue."""

    sequence_id: int
    request_id: str
    index: int  # which of the request's n sequences


@dataclass(frozen=True, slots=True)
class Admitted:
    """A sequence got a slot for the first time; `num_cached_tokens` came from the prefix cache."""

    sequence_id: int
    request_id: str
    num_cached_tokens: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """A preempted sequence got a slot again; `num_cached_tokens` of its recompute were refunded."""

    sequence_id: int
    request_id: str
    num_cached_tokens: int
    num_recomputed_tokens: int  # computed before, to be computed again: the bill after the refund


@dataclass(frozen=True, slots=True)
class Preempted:
    """A sequence lost slot and blocks to `beneficiary_id` and went back to the queue."""

    sequence_id: int
    request_id: str
    beneficiary_id: int  # who needed them, running or waiting; itself when it was its own victim
    num_lost_tokens: int  # computed tokens thrown away
    num_free_blocks_before: int
    num_free_blocks_after: int
    num_preemptions: int  # of this sequence, this one included


class Advanced(NamedTuple):
    """A sequence got new output tokens. By far the most frequent: a tuple is made twice as fast."""

    sequence_id: int
    request_id: str
    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Retired:
    """A sequence ended by itself; `stop_token_id` is set when a stop id ended it."""

    sequence_id: int
    request_id: str
    reason: FinishReason
    stop_token_id: int | None = None
    detail: str = ""  # a sentence for people where the reason alone says too little


@dataclass(frozen=True, slots=True)
class Aborted:
    """A sequence was withdrawn by the client or the driver."""

    sequence_id: int
    request_id: str
    reason: FinishReason = FinishReason.ABORT
    detail: str = ""
    cause: AbortCause = AbortCause.CLIENT


@dataclass(frozen=True, slots=True)
class Rejected:
    """A request was refused at the door and never queued; `reason` says what to change."""

    request_id: str
    reason: str
    cause: RefusalCause = RefusalCause.NEVER_FITS


Event = Queued | Admitted | Resumed | Preempted | Advanced | Retired | Aborted | Rejected


@dataclass(frozen=True, slots=True, eq=False)
class Names:
    """Of sequences that decode together: the same object for as long as they are the same."""

    sequence_ids: tuple[int, ...]
    request_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Advances(Sequence[Event]):
    """A token for each of those that decode together, an event each when somebody looks; then
    what happened to others, and what ended."""

    names: Names
    token_ids: Sequence[int]
    others: list[Event]

    def __len__(self) -> int:
        return len(self.token_ids) + len(self.others)

    def __iter__(self) -> Iterator[Event]:
        names = self.names
        fields = zip(names.sequence_ids, names.request_ids, zip(self.token_ids), strict=True)
        return chain(map(new_tuple, repeat(Advanced), fields), self.others)

    def __getitem__(self, index: Any) -> Any:
        return [*self][index]


def besides_decodes(events: Sequence[Event]) -> Sequence[Event]:
    """Without the tokens of those that decode together, where these are columns."""
    return events.others if isinstance(events, Advances) else events
