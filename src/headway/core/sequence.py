"""The scheduler's state of one token stream."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from headway.core.blocks import BlockHash
from headway.core.repetition import RepetitionWatch
from headway.core.request import Request


class SequenceStatus(enum.Enum):
    """Where a sequence is; why it waits is a Blocker, why it ended is a FinishReason."""

    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    FINISHED = "finished"


@dataclass(slots=True, eq=False, kw_only=True)
class Sequence:
    """One token stream of a request; only the scheduler writes to it. Tokens and counts may be
    behind until somebody asks the scheduler for its sequences, or a step for its chunks.

        token_ids       [prompt .......... output so far] (pending: sampled in flight, unknown yet)
        computed        [first num_computed_tokens ...........]  counts steps in flight as done
        block_ids       [block 0 | block 1 | ... ] holds at least the computed tokens

    Until `quiet_until` tokens are computed it is quiet: it decodes, no block is missing, none gets
    full, and no length ends it. A step finds nearly all so, and has nothing else to ask of them.
    """

    sequence_id: int
    request: Request
    index: int  # which of the request's n sequences
    max_num_tokens: int  # where it must end: prompt and output together, whatever the reason
    status: SequenceStatus = SequenceStatus.WAITING
    token_ids: list[int] = field(default_factory=list, repr=False)
    num_prompt_tokens: int = 0
    num_computed_tokens: int = 0
    block_ids: list[int] = field(default_factory=list)
    block_hashes: list[BlockHash] = field(default_factory=list, repr=False)
    quiet_until: int = 0
    num_registered_blocks: int = 0  # leading blocks that the prefix cache has been told about
    num_cached_tokens: int = 0  # prefix-cache hits at the first admission
    num_preemptions: int = 0
    num_lost_tokens: int = 0  # computed tokens thrown away by the latest preemption
    num_reached_tokens: int = 0  # the most that were computed when it was preempted
    passed_since_ns: int | None = None  # when others first got a slot before it that came later
    num_queued_tokens: int = 0  # what it counts in the backlog while it waits
    repetition: RepetitionWatch | None = field(default=None, repr=False)
    request_id: str = field(init=False, repr=False)  # the request's own two, that every token needs
    stop_token_ids: frozenset[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.token_ids = list(self.request.prompt_token_ids)
        self.num_prompt_tokens = len(self.token_ids)
        self.request_id = self.request.request_id
        self.stop_token_ids = self.request.stop_token_ids
        if (rule := self.request.sampling.repetition_detection) is not None:
            self.repetition = RepetitionWatch(rule)

    @property
    def num_tokens(self) -> int:
        """Tokens whose ids are known."""
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def is_prefilled(self) -> bool:
        return self.num_computed_tokens >= self.num_prompt_tokens

    @property
    def num_prefill_tokens_left(self) -> int:
        """Known tokens to compute before it yields its next one; none for a decode."""
        num_left = len(self.token_ids) - self.num_computed_tokens
        return num_left if num_left > 1 or self.num_computed_tokens < self.num_prompt_tokens else 0

    @property
    def num_expected_tokens(self) -> int:
        """Known, or sampled in flight: what is computed while it runs yields one more."""
        return max(len(self.token_ids), self.num_computed_tokens + 1)

    def num_wanted_tokens(self) -> int:
        """Tokens it still has to compute; none while what is in flight may already end it."""
        num_expected = self.num_expected_tokens
        return num_expected - self.num_computed_tokens if num_expected < self.max_num_tokens else 0

    def quieten(self, block_size: int, num_done: int) -> int:
        """All that it knows is computed, `num_done` tokens, or will be by the step that it is in:
        in how many steps it only decodes. One that is watched for repetition is never quiet."""
        if self.repetition is not None:
            return 0
        room = len(self.block_ids) * block_size
        before_full = num_done - num_done % block_size + block_size - 1
        self.quiet_until = quiet_until = min(room, before_full, self.max_num_tokens - 2)
        return max(0, quiet_until - self.num_computed_tokens)

    def finish(self) -> None:
        """It has ended."""
        self.quiet_until = 0
        self.status = SequenceStatus.FINISHED

    def forget_computed(self) -> None:
        """Start over after a preemption; known tokens, and those in flight, stay."""
        self.num_lost_tokens = self.num_computed_tokens
        self.num_reached_tokens = max(self.num_reached_tokens, self.num_computed_tokens)
        self.num_computed_tokens = 0
        self.quiet_until = 0
        self.num_registered_blocks = 0
        self.num_preemptions += 1
        self.status = SequenceStatus.PREEMPTED
