"""Sequences that decode together, step after step: what stays the same is looked up once."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as SequenceOf

from headway.core.events import Names
from headway.core.sequence import Sequence
from headway.core.step import Chunk, Chunks

_FAR = 255  # steps: as far ahead as a byte can say
_MANY = 64  # steps whose tokens are kept here


class Decodes:
    """Those of the running who are served before the first prompt, while all decode in every step.

    Of one nothing is asked until it is due: until it may need a block, fill one, or end. When that
    is, is a byte for each, the step's index modulo 256: who is due is found by search for a byte.
    In between a step counts a token, and is given one, of which the sequence knows nothing before
    it is due or somebody looks (`catch_up`): to touch all costs more than the rest of the step.
    """

    def __init__(self, running: list[Sequence], index: int) -> None:
        self.index = index  # of the next step
        self.gone: list[Sequence] = []  # who has left since the latest
        self.due: list[Sequence] = []  # in the latest
        self._running: list[Sequence] = []
        self._block_ids: list[list[int]] = []
        self._token_ids: list[list[int]] = []
        self._offsets = array("q")  # computed tokens, less the index
        self._due = bytearray()
        self._columns = (self._running, self._block_ids, self._token_ids, self._offsets, self._due)
        self._counted = index  # steps before this one are in the sequences' own counts
        self._tokens = array("i")  # of latest steps, one after the other; not given to all
        self._first = index  # before this step the first of them are needed
        self._sampled: SequenceOf[int] = ()  # the last of them, until the next step
        self._add(running)

    def _add(self, running: list[Sequence]) -> None:
        self._running += running
        self._block_ids += [s.block_ids for s in running]
        self._token_ids += [s.token_ids for s in running]
        self._offsets.extend([s.num_computed_tokens - self.index for s in running])
        quiet = [max(0, s.quiet_until - s.num_computed_tokens) for s in running]
        self._due += bytes([(self.index + min(num_steps, _FAR)) & _FAR for num_steps in quiet])
        self._stop_token_ids = frozenset().union(*{s.stop_token_ids for s in self._running})
        self.sequences, self._tables = tuple(self._running), tuple(self._block_ids)
        self._starts, self._sampled = tuple(self._offsets), ()
        names = [(s.sequence_id, s.request_id) for s in self._running]
        self.names = Names(*zip(*names, strict=True))

    def follow(self, running: list[Sequence]) -> bool:
        """Let go who has left, take in who comes behind the others. False: more has changed."""
        gone, self.gone = [s for s in self.gone if s in self._running], []
        for sequence in gone:
            place = self._running.index(sequence)
            for column in self._columns:
                del column[place]
        num_left = len(self._running)
        if self._running != running[:num_left]:
            return False
        if gone or num_left < len(running):
            self._add(running[num_left:])
        return True

    def find_due(self) -> list[Sequence]:
        """Who is due in the next step, in order of service."""
        self.due, self._places_due = due, places = list[Sequence](), list[int]()
        find, byte, place = self._due.find, self.index & _FAR, -1
        while (place := find(byte, place + 1)) >= 0:
            sequence = self._running[place]
            sequence.num_computed_tokens = self._offsets[place] + self.index
            due.append(sequence)
            places.append(place)
        return due

    def place(self, block_size: int) -> None:
        """Count the next token of each as computed. The blocks are there."""
        self.index += 1
        self._computed, self._sampled = self._sampled, ()
        self._places_ending = places_ending = list[int]()
        for place, sequence in zip(self._places_due, self.due, strict=True):
            sequence.num_computed_tokens = num_done = sequence.num_computed_tokens + 1
            if not num_done % block_size:  # the prefix cache is about to look at what is in it
                self._give(place)
            num_quiet_steps = sequence.quieten(block_size, num_done)
            self._due[place] = (self.index + min(num_quiet_steps, _FAR)) & _FAR
            if num_done + 1 >= sequence.max_num_tokens or sequence.repetition is not None:
                places_ending.append(place)

    def chunks(self, others: tuple[Chunk, ...] = ()) -> Chunks:
        """Of the latest step, with those of others."""
        columns = (self.sequences, self._starts, self._tables)
        return Chunks(*columns, self.index - 1, others, self.catch_up, self._computed)

    def advance(self, tokens: SequenceOf[int]) -> list[Sequence]:
        """Take a token of the latest step for each; returns whom they may have ended."""
        if not self._tokens:
            self._first = self.index
        self._tokens.extend(tokens)
        self._sampled, places = tokens, self._places_ending
        if not (stops := self._stop_token_ids).isdisjoint(tokens):
            places = sorted({*places, *(i for i, token in enumerate(tokens) if token in stops)})
        for place in places:
            self._give(place)
        if len(self._tokens) >= _MANY * len(tokens):
            self.catch_up()
        return [self._running[place] for place in places]

    def _give(self, place: int) -> None:
        """Let one have its tokens."""
        token_ids, width = self._token_ids[place], len(self._running)
        num_given = len(token_ids) - self._offsets[place] - self._first
        token_ids += self._tokens[place + num_given * width :: width]

    def catch_up(self) -> None:
        """Let all know what they have computed and got."""
        if self._counted != self.index:
            self._counted = self.index
            for sequence, offset in zip(self._running, self._offsets, strict=True):
                sequence.num_computed_tokens = offset + self.index
        if self._tokens:
            for place in range(len(self._running)):
                self._give(place)
            self._tokens = array("i")
