"""Logprobs of sampled and of prompt tokens, gathered by sequence until somebody takes them."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

import numpy as np

from headway.core.sequence import Sequence
from headway.engine.token_batch import PromptRows
from headway.ops.interface import F32, Ops
from headway.wire import SequenceLogprobs, TokenLogprobs


def describe(logprobs: F32, token_id: int, num_top: int) -> TokenLogprobs:
    """One row of log-probabilities [V]: the token's own, its rank, and the `num_top` largest.

    Ties are broken by the lower token id.
    """
    own = logprobs[token_id]
    rank = int(np.count_nonzero(logprobs > own)) + 1
    return TokenLogprobs(token_id, float(own), rank, _top(logprobs, num_top))


def _top(logprobs: F32, count: int) -> list[tuple[int, float]]:
    count = min(count, len(logprobs))
    if count == 0:
        return []
    threshold = np.partition(logprobs, -count)[-count]
    candidates = np.flatnonzero(logprobs >= threshold)  # ascending ids, maybe more than count
    order = np.argsort(-logprobs[candidates], kind="stable")[:count]
    return [(int(i), float(logprobs[i])) for i in candidates[order]]


class LogprobStore:
    """What the passes found out, until `take`; positions already reported are not repeated.

    A recompute after preemption passes over prompt positions again: `_scored` remembers how far a
    sequence's prompt has been reported.
    """

    def __init__(self, ops: Ops) -> None:
        self._ops = ops
        self._output: dict[int, list[TokenLogprobs]] = {}
        self._prompt: dict[int, list[TokenLogprobs | None]] = {}
        self._scored: dict[int, int] = {}

    def forget(self, sequence_id: int) -> None:
        self._scored.pop(sequence_id, None)

    def take(self) -> list[SequenceLogprobs]:
        """Everything gathered since the last call, by sequence."""
        if not (self._output or self._prompt):  # nearly always
            return []
        ids = list(self._output) + [i for i in self._prompt if i not in self._output]
        taken = [SequenceLogprobs(i, self._output.get(i, []), self._prompt.get(i, [])) for i in ids]
        self._output, self._prompt = {}, {}
        return taken

    def log_softmax(self, logits: F32) -> F32:
        out = np.empty_like(logits)
        self._ops.log_softmax(logits, out)
        return out

    def add_outputs(
        self, rows: SequenceOf[F32], sequences: SequenceOf[Sequence], tokens: SequenceOf[int]
    ) -> None:
        """`rows`: the raw log-probabilities of sequences that asked for them."""
        for row, sequence, token in zip(rows, sequences, tokens, strict=True):
            entry = describe(row, token, sequence.request.sampling.logprobs or 0)
            self._output.setdefault(sequence.sequence_id, []).append(entry)

    def add_prompt(self, logits: F32, rows: PromptRows, offset: int = 0) -> None:
        """Raw logits of consecutive rows of one chunk, starting at its row number `offset`."""
        sequence = rows.chunk.sequence
        num_top = sequence.request.sampling.prompt_logprobs or 0
        first = rows.chunk.first_position + offset + 1  # the position that row 0 predicts
        scored = self._scored.get(sequence.sequence_id, 0)
        entries = self._prompt.setdefault(sequence.sequence_id, [])
        if scored == 0:
            entries.append(None)  # nothing predicts the first prompt token
            scored = 1
        for i, row in enumerate(self.log_softmax(logits)):
            if first + i == scored:
                entries.append(describe(row, sequence.token_ids[first + i], num_top))
                scored += 1
        self._scored[sequence.sequence_id] = scored
