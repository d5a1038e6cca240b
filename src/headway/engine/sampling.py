"""From logits to tokens: penalties and masks in place, then one draw per row.

The order is vLLM's: raw logprobs are taken first; then allowed_token_ids, bad words, min_tokens,
logit_bias, the three penalties, temperature, top_k, top_p, min_p. A row's token depends on its own
logits, its own history, its seed and its position, and on nothing else in the batch.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from weakref import WeakValueDictionary

import numpy as np

from headway.core.request import Request, SamplingParams
from headway.core.sequence import Sequence
from headway.engine.token_counts import TokenCounts
from headway.engine.token_tables import TokenTables
from headway.ops.interface import F32, Ops

_MASK64 = (1 << 64) - 1
_LARGEST, _SMALLEST = float(np.finfo(np.float32).max), float(np.finfo(np.float32).tiny)


def stream_seed(seed: int, index: int) -> int:
    """The 64-bit key of one of a request's n token streams (splitmix64 of seed and index)."""
    z = (seed + (index + 1) * 0x9E3779B97F4A7C15) & _MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK64
    return z ^ (z >> 31)


class Sampler:
    """Chooses the next token of each row of a step.

    Holds one `TokenCounts` per sequence that uses a penalty, brought up to date from the sequence's
    own tokens, so that preemption and recompute cannot disturb it; `forget` drops it. `TokenTables`
    belong to a request and go with the last of its sequences.
    """

    def __init__(self, ops: Ops) -> None:
        self._ops = ops
        self._counts: dict[int, TokenCounts] = {}
        self._tables: dict[int, TokenTables] = {}
        self._tables_of_request: WeakValueDictionary[str, TokenTables] = WeakValueDictionary()

    def forget(self, sequence_id: int) -> None:
        self._counts.pop(sequence_id, None)
        self._tables.pop(sequence_id, None)

    def sample(self, logits: F32, sequences: SequenceOf[Sequence]) -> list[int]:
        """One token id per row; `logits` [R, V] is overwritten."""
        for row, sequence in zip(logits, sequences, strict=True):
            self._adjust(row, sequence)
        out = np.empty(len(sequences), np.int32)
        params = [sequence.request.sampling for sequence in sequences]
        if all(p.is_greedy for p in params):
            self._ops.argmax(logits, out)
        else:
            self._draw(logits, sequences, params, out)
        return [_forced(s, int(token)) for s, token in zip(sequences, out, strict=True)]

    def _draw(
        self,
        logits: F32,
        sequences: SequenceOf[Sequence],
        params: list[SamplingParams],
        out: np.ndarray,
    ) -> None:
        seeds = [stream_seed(s.request.seed, s.index) for s in sequences]
        self._ops.sample(
            logits,
            # A float64 that is in range may round to a float32 that is not.
            np.array([min(p.temperature, _LARGEST) for p in params], np.float32),
            np.array([min(p.top_k, logits.shape[1]) for p in params], np.int32),
            np.array([max(p.top_p, _SMALLEST) for p in params], np.float32),
            np.array([p.min_p for p in params], np.float32),
            np.array(seeds, np.uint64),
            np.array([len(s.token_ids) for s in sequences], np.int64),
            out,
        )

    def _adjust(self, row: F32, sequence: Sequence) -> None:
        params = sequence.request.sampling
        if _names_tokens(sequence.request):
            tables = self._tables_for(sequence)
            _mask(row, sequence, tables)
            tables.add_bias(row)
        if _uses_penalties(params):
            self._penalise(row, sequence, params)

    def _tables_for(self, sequence: Sequence) -> TokenTables:
        found = self._tables.get(sequence.sequence_id)
        if found is None:
            request = sequence.request
            found = self._tables_of_request.get(request.request_id) or TokenTables(request)
            self._tables_of_request[request.request_id] = found
            self._tables[sequence.sequence_id] = found
        return found

    def _penalise(self, row: F32, sequence: Sequence, params: SamplingParams) -> None:
        counts = self._counts.get(sequence.sequence_id)
        if counts is None:
            counts = self._counts[sequence.sequence_id] = TokenCounts(sequence.num_prompt_tokens)
        counts.catch_up(sequence.token_ids)
        if params.repetition_penalty != 1.0:
            seen = counts.seen_ids()
            penalty = np.float32(min(max(params.repetition_penalty, _SMALLEST), _LARGEST))
            with np.errstate(over="ignore", under="ignore"):
                changed = np.where(row[seen] > 0, row[seen] / penalty, row[seen] * penalty)
            row[seen] = np.minimum(changed, _LARGEST)
        if params.frequency_penalty or params.presence_penalty:
            ids, times = counts.output_counts()
            row[ids] -= np.float32(params.frequency_penalty) * times
            row[ids] -= np.float32(params.presence_penalty)


def _names_tokens(request: Request) -> bool:
    params = request.sampling
    return bool(
        params.logit_bias
        or params.allowed_token_ids is not None
        or request.bad_word_ids
        or params.min_tokens
    )


def _mask(row: F32, sequence: Sequence, tables: TokenTables) -> None:
    """What may not come next becomes -inf."""
    banned = tables.banned(sequence, len(row))
    ids = tables.allowed
    if ids is None:
        row[banned] = -np.inf
        return
    before = row[ids]
    row.fill(-np.inf)
    row[ids] = before
    row[banned] = -np.inf
    if np.all(row[ids] == -np.inf):
        row[ids] = before  # bans that leave nothing are lifted: some token there must be


def _forced(sequence: Sequence, token: int) -> int:
    forced, place = sequence.request.forced_token_ids, sequence.num_output_tokens
    return forced[place] if place < len(forced) else token


def _uses_penalties(params: SamplingParams) -> bool:
    return (
        params.repetition_penalty != 1.0
        or params.frequency_penalty != 0.0
        or params.presence_penalty != 0.0
    )
