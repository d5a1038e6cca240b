"""A step while it is being decided: the only purse of its token budget."""

from __future__ import annotations

from headway.core.decodes import Decodes
from headway.core.events import Aborted, Admitted, Preempted, Resumed, Retired, new_tuple
from headway.core.sequence import Sequence
from headway.core.step import Blocker, Chunk, Chunks, Step


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
        self.makes_way_for: Sequence | None = None  # the first waiting one, to come in now or next
        self.invited: set[int] = set()  # of the waiting: for whom somebody was put out in this step
        self.barred: dict[Blocker, int] = {}  # how many a constraint kept waiting, by its reason
        self.tokenless: list[Sequence] = []  # of the running: who gets no token from this step
        self.left_out: list[Sequence] = []  # of these: who could have decoded
        self._num_held = 0
        self.predicted_ns: int | None = None
        self._decodes: Decodes | None = None
        self._chunks: list[Chunk] = []
        self._blocked: tuple[Blocker, int] | None = None
        self._first_barred: tuple[Blocker, int] | None = None

    @property
    def is_empty(self) -> bool:
        return not (self._decodes or self._chunks)

    def place(self, decodes: Decodes, block_size: int) -> None:
        """A decode for each of them, before anybody else is placed; the budget must be enough."""
        self._decodes = decodes
        decodes.place(block_size)
        decodes.catch_up()  # whoever decides about others may look at them
        self.tokens_left -= len(decodes.sequences)

    def chunks(self) -> Chunks | tuple[Chunk, ...]:
        return self._decodes.chunks(tuple(self._chunks)) if self._decodes else tuple(self._chunks)

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
        if self._decodes and sequence in self._decodes.sequences:
            self._chunks, self._decodes = list(self.chunks()), None
        for place, chunk in enumerate(self._chunks):
            if chunk.sequence is sequence:
                del self._chunks[place]
                self.tokens_left += chunk.num_tokens
                sequence.num_computed_tokens = chunk.first_position
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
            chunks=self.chunks(),
            expired=tuple(self.expired),
            admitted=tuple(self.admitted),
            resumed=tuple(self.resumed),
            preempted=tuple(self.preempted),
            retired=tuple(self.retired),
            blocker=blocker,
            blocked_sequence_id=blocked_sequence_id,
            predicted_ns=self.predicted_ns,
        )
