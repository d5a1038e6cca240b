"""Steps to come that decide nothing new: every running sequence decodes one token in each.

A driver that knows how long such steps take, and what they yield, may take many of them at once.
The state afterwards is the one that the steps would have left one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

from headway.core.config import SchedulerConfig
from headway.core.constraints import Constraint
from headway.core.policies.batching import BatchingUnit
from headway.core.prefix import PrefixCache
from headway.core.sequence import Sequence
from headway.core.step import Blocker, Step


@dataclass(frozen=True, slots=True)
class Stride:
    """Up to `max_num_steps` steps, the first of which has the index `first_index`.

    Valid until the scheduler is told anything else. Arrivals, time limits and stop tokens are not
    in it: no step of it may begin when one of the former is due, and only the last that is taken
    may yield one of the latter.
    """

    first_index: int
    sequences: tuple[Sequence, ...]  # in order of service
    max_num_steps: int
    blocker: Blocker | None  # of each of its steps
    blocked_sequence_id: int | None


class Outlook:
    """Whether those who wait go on waiting for as long as the running only decode."""

    def __init__(
        self, config: SchedulerConfig, unit: BatchingUnit, constraints: SequenceOf[Constraint]
    ) -> None:
        self._unit = unit
        lasting = [Blocker.SLOTS, Blocker.STATIC_BATCH]
        # Not TENANT: in the next step the slots may be full, which is then the reason. As decodes
        # go on, what a prompt gets of a step with a target changes, and who has a fair share.
        if not (config.enable_prefix_caching or config.target_itl_ms or config.ordering == "fair"):
            lasting.append(Blocker.BLOCKS)  # or one that gets its name could be what they need
        self._lasting = () if constraints else tuple(lasting)
        self._is_disturbed = False
        self.repeats = False  # all that run decoded in the latest step, and nobody waits
        self.blocked: tuple[Blocker | None, int | None] = (None, None)  # by the latest step
        self.offered: Stride | None = None  # and not out of date

    def decided(self, step: Step, is_settled: bool, repeats: bool) -> None:
        self.repeats = repeats
        self.blocked = (step.blocker, step.blocked_sequence_id)
        self._is_disturbed = not is_settled

    def disturb(self) -> None:
        """Somebody has come or gone since the latest step."""
        self._is_disturbed = True
        self.repeats = False
        self.offered = None

    def is_settled(self, first_id: int) -> bool:
        """`first_id`: of the first in the queue, who must be the one that was blocked."""
        blocker, blocked_id = self.blocked
        if self._is_disturbed or blocker not in self._lasting or blocked_id != first_id:
            return False
        # The step that seals a batch names what filled it, those behind it that it is sealed.
        return self._unit.is_sealed == (blocker is Blocker.STATIC_BATCH)


def num_quiet_steps(sequences: SequenceOf[Sequence], num_free: int, block_size: int) -> int:
    """How many steps they all decode in, the first that is full in the last; no block missing, of
    so many that are free for them."""
    most: int | None = None
    for sequence in reversed(sequences):  # the latest are those that may still be prefilling
        num_tokens = len(sequence.token_ids)
        if (
            sequence.num_computed_tokens != num_tokens - 1
            or num_tokens <= sequence.num_prompt_tokens
            or sequence.repetition is not None
        ):
            return 0
        num_left = sequence.max_num_tokens - num_tokens
        if most is None or num_left < most:
            most = num_left
    return _steps_with_room(sequences, num_free, block_size, most) if most else 0


def _steps_with_room(
    sequences: SequenceOf[Sequence], num_free: int, block_size: int, most: int
) -> int:
    # From its first need on, each takes a block every `block_size` steps.
    periods, num_left = divmod(num_free, len(sequences))
    if periods:
        return min(most, periods * block_size)  # at least: the next stride goes on from there
    first_needs = sorted(
        len(sequence.block_ids) * block_size - sequence.num_computed_tokens + 1
        for sequence in sequences
    )
    return min(most, first_needs[num_left] - 1, first_needs[0] + block_size - 1)


def walk(
    stride: Stride,
    num_steps: int,
    token_ids: SequenceOf[SequenceOf[int]],
    grow: Callable[[Sequence, int], None],
    prefix: PrefixCache | None,
    block_size: int,
) -> None:
    """Take the steps: blocks, and names of blocks, in the order in which the steps would have.

    `token_ids`: `num_steps` new ones for each sequence. `grow` gets one blocks. Raises ValueError,
    with nothing changed, if there are others.
    """
    if len(token_ids) != len(stride.sequences) or {len(ids) for ids in token_ids} != {num_steps}:
        raise ValueError(f"{num_steps} tokens are wanted for each of {len(stride.sequences)}")
    allocate, fill = 0, 1  # in a step all blocks are handed out before any is named
    borders: list[tuple[int, int, int]] = []
    start = [sequence.num_computed_tokens for sequence in stride.sequences]
    for place, sequence in enumerate(stride.sequences):
        num_computed = start[place]
        step = len(sequence.block_ids) * block_size - num_computed + 1
        while step <= num_steps:
            borders.append((step, allocate, place))
            step += block_size
        if prefix is not None:
            step = block_size - num_computed % block_size
            while step <= num_steps:
                borders.append((step, fill, place))
                step += block_size
        sequence.token_ids += token_ids[place]
        sequence.num_computed_tokens = num_computed + num_steps
    borders.sort()
    for step, what, place in borders:
        sequence = stride.sequences[place]
        if what == allocate:
            grow(sequence, 1)
        elif prefix is not None:
            sequence.num_computed_tokens = start[place] + step
            prefix.register((sequence,))
            sequence.num_computed_tokens = start[place] + num_steps
