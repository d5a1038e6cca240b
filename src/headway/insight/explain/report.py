"""An explanation: plain values, as they are printed and sent.

Times are integer nanoseconds. `parts_ns` has a value for each of PARTS and adds up to `e2e_ns`,
to the nanosecond, of every sequence.
"""

from __future__ import annotations

from dataclasses import dataclass, field

QUEUE, PREFILL, DECODE, STALL = "queue", "prefill", "decode", "stall"
PREEMPTED, RECOMPUTE, DELIVERY = "preempted", "recompute", "delivery"
PARTS = (QUEUE, PREFILL, DECODE, STALL, PREEMPTED, RECOMPUTE, DELIVERY)
STEP = "step"  # not a wall: what it waits for before a step is decided with it in the queue


@dataclass(frozen=True, slots=True, kw_only=True)
class Holder:
    """Who had what another waited for; `blocks` and `tokens` are 0 where they are not the point."""

    request_id: str
    held_ns: int  # while the other waited
    blocks: int = 0  # that it held in the end, or holds
    tokens: int = 0  # of its prompt, computed meanwhile


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """`reason`: a Blocker's value, or "step": for the step under way, and to be taken in."""

    reason: str
    ns: int
    held_by: tuple[Holder, ...] = ()  # a handful, the largest first


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefill:
    """Its own prompt: computed in `steps` steps, with others computed in between."""

    computed_tokens: int
    cached_tokens: int
    steps: int
    computing_ns: int
    between_ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StalledBy:
    """What the prompt of another request added to steps in which this sequence decoded."""

    request_id: str
    ns: int
    steps: int
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stall:
    """`by`: a handful, the largest first; `unknown_ns`: so long ago that nobody remembers."""

    steps: int
    by: tuple[StalledBy, ...] = ()
    others_ns: int = 0
    unknown_ns: int = 0
    longest_ns: int = 0
    longest_step: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """One preemption. `at_ns` is since the request's arrival."""

    at_ns: int
    number: int  # of this sequence, from 1
    beneficiary: str  # the request that got the blocks; its own where it was its own victim
    lost_tokens: int
    free_blocks_before: int
    free_blocks_after: int
    away_ns: int = 0
    recomputed_tokens: int = 0
    refunded_tokens: int = 0  # found in the prefix cache again


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """A stretch of one phase; `start_ns` is since the request's arrival."""

    part: str
    start_ns: int
    ns: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceExplanation:
    """Of n sequences one; `segments`, `evictions`: the first of very many, all are in the sums."""

    index: int
    status: str  # waiting, running, preempted, or why it ended
    e2e_ns: int
    parts_ns: dict[str, int]
    output_tokens: int
    preemptions: int
    waits: tuple[Wait, ...]  # in the queue before its first step
    waits_again: tuple[Wait, ...]  # in the queue after preemptions
    prefill: Prefill
    stall: Stall
    evictions: tuple[Eviction, ...]
    lost_tokens: int
    recomputed_tokens: int
    refunded_tokens: int
    segments: tuple[Segment, ...]
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """One request. Its own line is that of the sequence that ended last, or is furthest behind.

    `cause` is what took most of what was not its own work, "queue: blocks" or "stall", if it took a
    tenth of the whole; else the larger part of its own work.
    """

    request_id: str
    status: str
    verdict: str
    cause: str
    e2e_ns: int
    parts_ns: dict[str, int]
    prompt_tokens: int
    output_tokens: int
    tenant: str
    sequences: tuple[SequenceExplanation, ...]
    others: tuple[str, ...] = field(default=())  # requests of the same body


@dataclass(frozen=True, slots=True, kw_only=True)
class Glance:
    """An explanation in one row."""

    request_id: str
    status: str
    verdict: str
    cause: str
    e2e_ns: int
    parts_ns: dict[str, int]
