"""How long steps take here, learned from the steps themselves.

A step's time is taken as a sum, each part with a rate that is never below zero:

    once   +   each decode   +   each token that decodes attend
           +   each prompt token   +   each pair of a prompt token and one that it attends

The last is why a token late in a long prompt costs more than an early one. The rates minimise the
squared relative errors of the steps with a prompt in them (a step of 2 s counts as much as one of
20 ms, and one that the host held up hardly counts), the latest most: weights fall by 1/128 with
each. They are found by coordinate descent, from where the last search ended, all in whole numbers:
the same steps give the same rates on every platform.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from typing import NamedTuple

from headway.core.step import Chunk, Chunks, apart

_NUM_PARTS = 5
_MEMORY_BITS = 7  # a weight falls by 1/128 with each step learned
_SHARE_BITS = 48  # of what a part would be of a step's time at a rate of 1 ns
_RATE_BITS = 16  # rates are in 1/65536 ns
_ONE = 1 << (_SHARE_BITS + _RATE_BITS)
_SWEEPS = 3
_PROMPTS_FIRST = (3, 4, 0, 1, 2)  # what one step alone can be blamed on, its prompts are


class Load(NamedTuple):
    """What a step computes. A token at position p attends p + 1 tokens, itself among them."""

    num_decodes: int
    decode_attended: int
    num_prefill_tokens: int
    prefill_attended: int


def load_of(chunks: Chunks | SequenceOf[Chunk]) -> Load:
    """The load of a step of these chunks."""
    firsts, others = apart(chunks)
    decodes, decode_attended, tokens, attended = len(firsts), sum(firsts) + len(firsts), 0, 0
    for sequence, first, count, _, _ in others:
        if count == 1 and first >= sequence.num_prompt_tokens:
            decodes += 1
            decode_attended += first + 1
        else:
            tokens += count
            attended += num_attended(first, count)
    return Load(decodes, decode_attended, tokens, attended)


def num_attended(first_position: int, num_tokens: int) -> int:
    """Tokens that those at [first_position, first_position + num_tokens) attend, summed."""
    return num_tokens * first_position + num_tokens * (num_tokens + 1) // 2


class StepTimes:
    """Predicts the time of a step from its load."""

    def __init__(self) -> None:
        self._products = [[0] * _NUM_PARTS for _ in range(_NUM_PARTS)]
        self._sums = [0] * _NUM_PARTS
        self._rates = [0] * _NUM_PARTS

    def learn(self, load: Load, span_ns: int) -> None:
        """A step with this load took so long."""
        span_ns = max(1, span_ns)
        shares = [(part << _SHARE_BITS) // span_ns for part in (1, *load)]
        for share, row in zip(shares, self._products, strict=True):
            for column, other in enumerate(shares):
                row[column] += share * other - (row[column] >> _MEMORY_BITS)
        for place, share in enumerate(shares):
            self._sums[place] += share - (self._sums[place] >> _MEMORY_BITS)
        for _ in range(_SWEEPS):
            self._sweep()

    def _sweep(self) -> None:
        rates = self._rates
        for place in _PROMPTS_FIRST:
            row = self._products[place]
            if not row[place]:
                continue
            explained = sum(map(int.__mul__, row, rates)) - row[place] * rates[place]
            rates[place] = max(0, (self._sums[place] * _ONE - explained) // row[place])

    def predict_ns(self, load: Load) -> int:
        once, decode, decode_attended, prefill, prefill_attended = self._rates
        return (
            once
            + decode * load[0]
            + decode_attended * load[1]
            + prefill * load[2]
            + prefill_attended * load[3]
        ) >> _RATE_BITS

    def prefill_ns(self, first_position: int, num_tokens: int) -> int:
        """What a chunk of a prompt adds to a step."""
        tokens = self._rates[3] * num_tokens
        return (tokens + self._rates[4] * num_attended(first_position, num_tokens)) >> _RATE_BITS
