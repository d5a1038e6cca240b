"""A step while it is being decided: the only purse of its token budget."""

from __future__ import annotations

from collections.abc import Iterator

from headway.core.events import Aborted, Admitted, Preempted, Resumed, Retired
from headway.core.sequence import Sequence
from headway.core.step import Blocker, Chunk, Step

new_tuple = tuple.__new__  # what a NamedTuple's own constructor calls, in less than half the time


class StepBuilder:
    """Spends the token budget, gives it back when a placed sequence is dropped."""

    def __init__(self, *, index: int, max_num_tokens: int) -> None:
        self.index = index
        self.tokens_left = max_num_tokens
        self.expired: list[Aborted] = []
        self.admitted: list[Admitted] = []
        self.resumed: list[Resumed] = []
        self.preempted: list[Preempted] = []
        self.retired: list[Retired] = []
        self.is_settled = True  # False: what keeps the waiting waiting may change by itself
        self.makes_way = False  # for a waiting one, that comes in now or in the next
        self.barred: dict[Blocker, int] = {}  # how many a constraint kept waiting, by its reason
        self.tokenless: list[Sequence] = []  # of the running: who gets no token from this step
        self._num_held = 0
        self.predicted_ns: int | None = None
        self._chunks: list[Chunk] = []
        self._blocked: tuple[Blocker, int] | None = None
        self._first_barred: tuple[Blocker, int] | None = None

    @property
    def is_empty(self) -> bool:
        return not self._chunks

    def add_quiet(self, sequences: Iterator[Sequence]) -> Sequence | None:
        """Place a decode for each while they are quiet and the budget lasts; returns the next one.

        `add`, but for what cannot be otherwise: this is where the time of a large batch goes.
        """
        place, num_left = self._chunks.append, self.tokens_left
        for sequence in sequences:
            num_quiet, first = sequence.num_quiet_steps, sequence.num_computed_tokens
            if not num_quiet or not num_left:
                self.tokens_left = num_left
                return sequence
            sequence.num_quiet_steps = num_quiet - 1
            place(new_tuple(Chunk, (sequence, first, 1, True, sequence.block_ids)))
            sequence.num_computed_tokens = first + 1
            sequence.num_pending_tokens += 1
            num_left -= 1
        self.tokens_left = num_left
        return None

    def chunks(self) -> list[Chunk]:
        return self._chunks

    def chunk_of(self, sequence: Sequence) -> Chunk | None:
        return next((chunk for chunk in self._chunks if chunk.sequence is sequence), None)

    def add(self, sequence: Sequence, num_tokens: int, *, samples: bool) -> None:
        """Place the sequence's next `num_tokens` in the step and count them as computed.

        `samples`: they are all that it still has to compute.
        """
        fields = (sequence, sequence.num_computed_tokens, num_tokens, samples, sequence.block_ids)
        self._chunks.append(new_tuple(Chunk, fields))
        self.tokens_left -= num_tokens
        sequence.num_computed_tokens += num_tokens
        sequence.num_pending_tokens += samples
        if not samples:
            self.tokenless.append(sequence)

    @property
    def budget_left(self) -> int:
        """All that is left of the budget, with what is held."""
        return self.tokens_left + self._num_held

    def hold(self, num_tokens: int) -> None:
        """Keep so much of the budget from those who are placed until `release`."""
        self.tokens_left -= num_tokens
        self._num_held = num_tokens

    def release(self) -> None:
        """What was held may be spent."""
        self.tokens_left += self._num_held
        self._num_held = 0

    def drop(self, sequence: Sequence) -> None:
        """Undo `add`, if there was one."""
        for place, chunk in enumerate(self._chunks):
            if chunk.sequence is sequence:
                del self._chunks[place]
                self.tokens_left += chunk.num_tokens
                sequence.num_computed_tokens = chunk.first_position
                sequence.num_pending_tokens -= chunk.samples
                if not chunk.samples:
                    self.tokenless.remove(sequence)
                return

    def block(self, sequence: Sequence, blocker: Blocker) -> None:
        """Admission ends at this sequence, for this reason."""
        self._blocked = (blocker, sequence.sequence_id)

    def bar(self, sequence: Sequence, blocker: Blocker, num_sequences: int = 1) -> None:
        """A constraint passes this sequence over, and so many in all; those behind may still be
        admitted."""
        self.barred[blocker] = self.barred.get(blocker, 0) + num_sequences
        if self._first_barred is None:
            self._first_barred = (blocker, sequence.sequence_id)

    @property
    def blocked(self) -> tuple[Blocker, int] | None:
        """Why somebody still waits, and who."""
        if self.preempted:
            return Blocker.EVICTION, self.preempted[-1].sequence_id
        return self._blocked or self._first_barred

    def build(self) -> Step:
        blocker, blocked_sequence_id = self.blocked or (None, None)
        return Step(
            index=self.index,
            chunks=tuple(self._chunks),
            expired=tuple(self.expired),
            admitted=tuple(self.admitted),
            resumed=tuple(self.resumed),
            preempted=tuple(self.preempted),
            retired=tuple(self.retired),
            blocker=blocker,
            blocked_sequence_id=blocked_sequence_id,
            predicted_ns=self.predicted_ns,
        )
