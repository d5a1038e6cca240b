"""Draws sessions, a block at a time: what each client will ask, whenever it comes to ask it.

The n-th session is the same whatever the scheduler does to those before it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from headway.simulator.workload.base import MAX_NAME, Segment
from headway.simulator.workload.clients import Choice
from headway.simulator.workload.draws import BLOCK, Purpose, Uniforms
from headway.simulator.workload.exact_math import Integers
from headway.simulator.workload.lengths import LengthLaw
from headway.simulator.workload.waits import NO_WAIT, WaitLaw

if TYPE_CHECKING:
    from headway.simulator.workload.synthetic import Synthetic


@dataclass(frozen=True, slots=True, eq=False)
class Conversations:
    """Sessions whose lengths are given, in order. `turns`: [sessions]; the others: [all turns].

    `prompts`: new words of each turn, in tokens. `source` says where they come from and how their
    tokens were counted. `think` passes between an answer and the next prompt.
    """

    source: str
    turns: Integers
    prompts: Integers
    outputs: Integers
    think: WaitLaw = NO_WAIT


@dataclass(frozen=True, slots=True)
class _Block:
    """Lists of one entry per session (prefix to pause_ns) or per turn."""

    prefix: list[Segment | None]
    tenant: list[str]
    adapter: list[str]
    priority: list[int]
    pause_ns: list[int]  # before a client's next session, in a closed loop
    prompt: list[int]
    output: list[int]
    max_tokens: list[int | None]
    think_ns: list[int]  # before each turn but the first of a session
    leaves_after_ns: list[int | None]
    first_name: int
    name_step: int


class Session(NamedTuple):
    number: int
    num_turns: int
    block: _Block
    row: int  # of what is per session
    first: int  # of what is per turn

    @property
    def prefix(self) -> Segment | None:
        return self.block.prefix[self.row]

    def words(self, turn: int) -> Segment:
        """What a prompt adds to what was said before."""
        index, block = self.first + turn, self.block
        return Segment(block.first_name + 2 * index * block.name_step, block.prompt[index])

    def output(self, turn: int) -> Segment:
        index, block = self.first + turn, self.block
        return Segment(block.first_name + (2 * index + 1) * block.name_step, block.output[index])


class SessionDraws:
    """The sessions of part `part` of a workload of `parts`, whose names have nothing in common."""

    def __init__(self, workload: Synthetic, part: int, parts: int) -> None:
        self._workload = workload
        self._streams = {p: Uniforms(workload.seed, part, p) for p in Purpose}
        self._part, self._parts = part, parts
        self._lengths = _lengths(workload, self._streams)
        self._prefixes = self._prefix_texts()
        self._num_sessions = 0
        self._num_turns = 0

    def __iter__(self) -> Iterator[Session]:
        """Sessions until the number of requests is reached, the last cut to fit."""
        for turns, prompts, outputs in self._lengths:
            turns = self._fitting(turns)
            if not len(turns):
                return
            total = int(turns.sum())
            block = self._block(len(turns), prompts[:total], outputs[:total])
            first = 0
            for row, count in enumerate(turns.tolist()):
                yield Session(self._num_sessions, count, block, row, first)
                self._num_sessions += 1
                first += count

    def _fitting(self, turns: Integers) -> Integers:
        limit = self._workload.num_requests
        if limit is None:
            return turns
        ends = np.minimum(np.cumsum(turns), limit - self._num_turns)
        turns = np.diff(ends, prepend=0)
        return turns[turns > 0]

    def _block(self, num_sessions: int, prompts: Integers, outputs: Integers) -> _Block:
        workload, num_turns = self._workload, len(prompts)
        first_name = (len(self._prefixes) + 2 * self._num_turns) * self._parts + self._part
        self._num_turns += num_turns
        if first_name + 2 * num_turns * self._parts > MAX_NAME:
            raise ValueError("more texts than there are names for: make fewer requests")
        return _Block(
            prefix=self._chosen_prefixes(num_sessions),
            tenant=self._chosen(workload.tenants, Purpose.TENANT, num_sessions),
            adapter=self._chosen(workload.adapters, Purpose.ADAPTER, num_sessions),
            priority=self._chosen(workload.priorities, Purpose.PRIORITY, num_sessions),
            pause_ns=self._waits(workload.closed_loop_think, Purpose.PAUSE, num_sessions),
            prompt=prompts.tolist(),
            output=outputs.tolist(),
            max_tokens=workload.max_tokens.at(outputs),
            think_ns=self._waits(workload.think, Purpose.THINK, num_turns),
            leaves_after_ns=self._patience(num_turns),
            first_name=first_name,
            name_step=self._parts,
        )

    def _take(self, purpose: Purpose, count: int) -> np.ndarray:
        return self._streams[purpose].take(count)

    def _chosen(self, choice: Choice, purpose: Purpose, count: int) -> list:
        if len(choice.weights) == 1:
            return [choice.weights[0][0]] * count
        return choice.at(self._take(purpose, count))

    def _chosen_prefixes(self, count: int) -> list[Segment | None]:
        prefixes = self._workload.prefixes
        if prefixes is None:
            return [None] * count
        texts = [*self._prefixes, None]  # -1 means none
        return [texts[index] for index in prefixes.at(self._take(Purpose.PREFIX, count))]

    def _prefix_texts(self) -> list[Segment]:
        prefixes = self._workload.prefixes
        if prefixes is None:
            return []
        lengths = prefixes.tokens.at(self._take(Purpose.PREFIX_LENGTH, prefixes.count)).tolist()
        return [Segment(i * self._parts + self._part, n) for i, n in enumerate(lengths)]

    def _waits(self, law: WaitLaw | None, purpose: Purpose, count: int) -> list[int]:
        return [] if law is None else law.at(self._take(purpose, count)).tolist()

    def _patience(self, count: int) -> list[int | None]:
        leaving = self._workload.leaving
        if leaving is None:
            return [None] * count
        chances = self._take(Purpose.LEAVES, count)
        return leaving.at(chances, self._take(Purpose.PATIENCE, count))


_Lengths = Iterator[tuple[Integers, Integers, Integers]]  # turns, and of all turns: words, outputs


def _lengths(workload: Synthetic, streams: dict[Purpose, Uniforms]) -> _Lengths:
    if workload.conversations is not None:
        return _given_lengths(workload.conversations)
    assert workload.prompt_tokens is not None
    assert workload.output_tokens is not None
    if workload.turns is None:
        return _single_turns(workload.prompt_tokens, workload.output_tokens, streams)
    return _drawn_lengths(workload, streams)


def _given_lengths(given: Conversations) -> _Lengths:
    first = 0
    for start in range(0, len(given.turns), BLOCK):
        turns = given.turns[start : start + BLOCK]
        end = first + int(turns.sum())
        yield turns, given.prompts[first:end], given.outputs[first:end]
        first = end


def _single_turns(
    prompt: LengthLaw, output: LengthLaw, streams: dict[Purpose, Uniforms]
) -> _Lengths:
    ones = np.ones(BLOCK, dtype=np.int64)
    while True:
        yield (
            ones,
            prompt.at(streams[Purpose.PROMPT].take(BLOCK)),
            output.at(streams[Purpose.OUTPUT].take(BLOCK)),
        )


def _drawn_lengths(workload: Synthetic, streams: dict[Purpose, Uniforms]) -> _Lengths:
    law, first_law, output_law = workload.turns, workload.prompt_tokens, workload.output_tokens
    assert law is not None
    assert first_law is not None
    assert output_law is not None
    later_law = law.prompt_tokens or first_law
    while True:
        turns = law.number.at(streams[Purpose.TURNS].take(BLOCK))
        total = int(turns.sum())
        prompts = np.empty(total, dtype=np.int64)
        is_first = np.zeros(total, dtype=np.bool_)
        is_first[np.cumsum(turns) - turns] = True
        prompts[is_first] = first_law.at(streams[Purpose.PROMPT].take(BLOCK))
        prompts[~is_first] = later_law.at(streams[Purpose.LATER_PROMPT].take(total - BLOCK))
        yield turns, prompts, output_law.at(streams[Purpose.OUTPUT].take(total))
