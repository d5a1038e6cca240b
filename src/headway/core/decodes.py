"""Sequences that decode together, step after step: what stays the same is looked up once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence as SequenceOf
from itertools import chain, repeat

from headway.core.events import Advanced, Event
from headway.core.sequence import Sequence
from headway.core.step import Chunk, Chunks, new_tuple


class Decodes:
    """Those of the running who are served before the first prompt, while all decode in every step.

    Nothing is asked of one until it is due: until it may need a block, fill one, or end. When that
    is stands in a calendar of steps. In between a step counts a token, and is given one.
    """

    def __init__(self, sequences: tuple[Sequence, ...], index: int) -> None:
        self.sequences = sequences
        self.index = index  # of the next step
        self.due: list[Sequence] = []  # in the latest
        self.sequence_ids = tuple([s.sequence_id for s in sequences])
        self._request_ids = [s.request_id for s in sequences]
        self._block_ids = tuple([s.block_ids for s in sequences])
        self._token_ids = [s.token_ids for s in sequences]
        self._stop_token_ids = frozenset().union(*{s.stop_token_ids for s in sequences})
        self._ends = [s.num_computed_tokens for s in sequences]
        self._calendar: defaultdict[int, list[int]] = defaultdict(list)
        for place, sequence in enumerate(sequences):
            self._calendar[index + sequence.num_quiet_steps].append(place)

    def find_due(self) -> list[Sequence]:
        """Who is due in the next step, in order of service."""
        self._places_due = sorted(self._calendar.pop(self.index, ()))
        self.due = [self.sequences[place] for place in self._places_due]
        return self.due

    def place(self, block_size: int) -> None:
        """Count the next token of each as computed. The blocks are there."""
        self._firsts, self._ends = self._ends, [end + 1 for end in self._ends]
        for sequence, num_computed_tokens in zip(self.sequences, self._ends, strict=True):
            sequence.num_computed_tokens = num_computed_tokens
        self.index += 1
        for place, sequence in zip(self._places_due, self.due, strict=True):
            sequence.quieten(block_size)
            self._calendar[self.index + sequence.num_quiet_steps].append(place)

    def chunks(self, others: tuple[Chunk, ...]) -> Chunks:
        """Of the latest step, with those of others."""
        return Chunks(self.sequences, self._firsts, self._block_ids, others)

    def advance(self, found: SequenceOf[tuple[int, ...]]) -> tuple[list[Event], list[Sequence]]:
        """Give each its token of the latest step; returns whom these may have ended, too."""
        tokens, places = list(chain.from_iterable(found)), self._places_due
        for token_ids, token_id in zip(self._token_ids, tokens, strict=True):
            token_ids.append(token_id)
        if not (stops := self._stop_token_ids).isdisjoint(tokens):
            places = sorted({*places, *(i for i, token in enumerate(tokens) if token in stops)})
        fields = zip(self.sequence_ids, self._request_ids, found, strict=True)
        events: list[Event] = list(map(new_tuple, repeat(Advanced), fields))
        return events, [self.sequences[place] for place in places]
