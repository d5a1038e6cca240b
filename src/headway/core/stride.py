"""Steps to come that decide nothing new: every running sequence decodes one token in each.

A driver that knows how long such steps take, and what they yield, may take many of them at once.
The state afterwards is the one that the steps would have left one by one.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from headway.core.blocks import BlockPool
from headway.core.config import SchedulerConfig
from headway.core.constraints import Constraint
from headway.core.prefix import PrefixCache
from headway.core.sequence import Sequence
from headway.core.step import Blocker, Step


@dataclass(frozen=True, slots=True)
class Stride:
    """Up to `max_num_steps` steps, the first of which has the index `first_index`.

    Valid until the scheduler is told anything else. Arrivals, time limits and stop tokens are not
    in it: no step of it may begin when one of the former is due, none may yield one of the latter.
    """

    first_index: int
    sequences: tuple[Sequence, ...]  # in order of service
    max_num_steps: int
    blocker: Blocker | None  # of each of its steps
    blocked_sequence_id: int | None

    @property
    def num_attended(self) -> int:
        """Tokens that the decodes of the first step attend, themselves among them."""
        return sum(sequence.num_computed_tokens + 1 for sequence in self.sequences)


class Outlook:
    """Whether those who wait go on waiting for as long as the running only decode."""

    def __init__(self, config: SchedulerConfig, constraints: SequenceOf[Constraint]) -> None:
        lasting = [Blocker.SLOTS, Blocker.STATIC_BATCH]
        if not config.enable_prefix_caching:
            lasting.append(Blocker.BLOCKS)  # or one that gets its name could be what they need
        self._lasting = () if constraints else tuple(lasting)
        self._is_disturbed = False
        self.blocked: tuple[Blocker | None, int | None] = (None, None)  # by the latest step

    def decided(self, step: Step) -> None:
        self.blocked = (step.blocker, step.blocked_sequence_id)
        self._is_disturbed = False

    def disturb(self) -> None:
        """Somebody has come or gone since the latest step."""
        self._is_disturbed = True

    @property
    def is_settled(self) -> bool:
        return not self._is_disturbed and self.blocked[0] in self._lasting


def num_quiet_steps(sequences: SequenceOf[Sequence], pool: BlockPool, block_size: int) -> int:
    """How many steps they all decode in, none of them full and no block missing; 0 for none."""
    most: int | None = None
    for sequence in reversed(sequences):  # the latest are those that may still be prefilling
        num_tokens = len(sequence.token_ids)
        if (
            sequence.num_computed_tokens != num_tokens - 1
            or num_tokens <= sequence.num_prompt_tokens
            or sequence.num_pending_tokens
            or sequence.repetition is not None
        ):
            return 0
        num_left = sequence.max_num_tokens - num_tokens - 1
        if most is None or num_left < most:
            most = num_left
    return _steps_with_room(sequences, pool.num_free, block_size, most) if most else 0


def _steps_with_room(
    sequences: SequenceOf[Sequence], num_free: int, block_size: int, most: int
) -> int:
    if len(sequences) * (most // block_size + 1) <= num_free:
        return most
    first_needs = [_first_need(sequence, block_size) for sequence in sequences]
    least = 0  # steps for which there is room
    while least < most:
        middle = (least + most + 1) // 2
        if sum((middle - f) // block_size + 1 for f in first_needs if f <= middle) <= num_free:
            least = middle
        else:
            most = middle - 1
    return least


def _first_need(sequence: Sequence, block_size: int) -> int:
    """The step, counted from 1, in which it needs its next block."""
    return len(sequence.block_ids) * block_size - sequence.num_computed_tokens + 1


def walk(
    stride: Stride,
    num_steps: int,
    token_ids: SequenceOf[SequenceOf[int]],
    pool: BlockPool,
    prefix: PrefixCache,
    block_size: int,
) -> None:
    """Take the steps: blocks and their names in the order in which the steps would have.

    `token_ids`: `num_steps` new ones for each sequence. Raises ValueError, with nothing changed,
    if there are others.
    """
    if len(token_ids) != len(stride.sequences) or {len(ids) for ids in token_ids} != {num_steps}:
        raise ValueError(f"{num_steps} tokens are wanted for each of {len(stride.sequences)}")
    allocate, fill = 0, 1  # in a step all blocks are handed out before any is named
    borders: list[tuple[int, int, int]] = []
    for place, sequence in enumerate(stride.sequences):
        for step in range(_first_need(sequence, block_size), num_steps + 1, block_size):
            borders.append((step, allocate, place))
        to_border = block_size - sequence.num_computed_tokens % block_size
        for step in range(to_border, num_steps + 1, block_size):
            borders.append((step, fill, place))
        sequence.token_ids += token_ids[place]
    start = [sequence.num_computed_tokens for sequence in stride.sequences]
    for step, what, place in sorted(borders):
        sequence = stride.sequences[place]
        if what == allocate:
            sequence.block_ids += pool.allocate(1)
        else:
            sequence.num_computed_tokens = start[place] + step
            prefix.register((sequence,))
    for place, sequence in enumerate(stride.sequences):
        sequence.num_computed_tokens = start[place] + num_steps
