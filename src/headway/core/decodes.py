"""Sequences that decode together, step after step: what stays the same is looked up once."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

from headway.core.events import Names
from headway.core.sequence import Sequence
from headway.core.step import Chunk, Chunks

_FAR = 255  # steps: as far ahead as a byte can say


class Decodes:
    """Those of the running who are served before the first prompt, while all decode in every step.

    Of one nothing is asked until it is due: until it may need a block, fill one, or end. When that
    is, is a byte for each, the step's index modulo 256: who is due is found by search for a byte.
    In between a step counts a token, and is given one.
    """

    def __init__(self, running: list[Sequence], index: int) -> None:
        self.index = index  # of the next step
        self.gone: list[Sequence] = []  # who has left since the latest
        self.due: list[Sequence] = []  # in the latest
        self._running: list[Sequence] = []
        self._block_ids: list[list[int]] = []
        self._token_ids: list[list[int]] = []
        self._ends: list[int] = []  # computed tokens
        self._due = bytearray()
        self._add(running)

    def _add(self, running: list[Sequence]) -> None:
        ends = [s.num_computed_tokens for s in running]
        self._running += running
        self._block_ids += [s.block_ids for s in running]
        self._token_ids += [s.token_ids for s in running]
        self._ends += ends
        self._due += bytes([_byte(self.index, s.num_quiet_steps) for s in running])
        self._stop_token_ids = frozenset().union(*{s.stop_token_ids for s in self._running})
        self.sequences, self._tables = tuple(self._running), tuple(self._block_ids)
        self.names = Names(
            tuple([s.sequence_id for s in self._running]),
            tuple([s.request_id for s in self._running]),
        )

    def follow(self, running: list[Sequence]) -> bool:
        """Let go who has left, take in who comes behind the others. False: more has changed."""
        gone, self.gone = [s for s in self.gone if s in self._running], []
        for sequence in gone:
            place = self._running.index(sequence)
            for column in (self._running, self._block_ids, self._token_ids, self._ends, self._due):
                del column[place]
        num_left = len(self._running)
        if self._running != running[:num_left]:
            return False
        if gone or num_left < len(running):
            self._add(running[num_left:])
        return True

    def find_due(self) -> list[Sequence]:
        """Who is due in the next step, in order of service."""
        places = self._places_due = list[int]()
        find, byte = self._due.find, self.index & _FAR
        while (place := find(byte, places[-1] + 1 if places else 0)) >= 0:
            places.append(place)
        self.due = [self._running[place] for place in places]
        return self.due

    def place(self, block_size: int) -> None:
        """Count the next token of each as computed. The blocks are there."""
        self._firsts, self._ends = self._ends, [end + 1 for end in self._ends]
        for sequence, num_computed_tokens in zip(self._running, self._ends, strict=True):
            sequence.num_computed_tokens = num_computed_tokens
        self.index += 1
        for place, sequence in zip(self._places_due, self.due, strict=True):
            sequence.quieten(block_size)
            self._due[place] = _byte(self.index, sequence.num_quiet_steps)

    def chunks(self, others: tuple[Chunk, ...] = ()) -> Chunks:
        """Of the latest step, with those of others."""
        return Chunks(self.sequences, self._firsts, self._tables, others)

    def advance(self, tokens: SequenceOf[int]) -> list[Sequence]:
        """Give each its token of the latest step; returns whom they may have ended."""
        places = self._places_due
        for token_ids, token_id in zip(self._token_ids, tokens, strict=True):
            token_ids.append(token_id)
        if not (stops := self._stop_token_ids).isdisjoint(tokens):
            places = sorted({*places, *(i for i, token in enumerate(tokens) if token in stops)})
        return [self._running[place] for place in places]


def _byte(index: int, num_steps: int) -> int:
    return (index + min(num_steps, _FAR)) & _FAR
