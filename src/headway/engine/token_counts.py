"""How often each token stands in a sequence, and the penalties that follow from it."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

import numpy as np
import numpy.typing as npt

from headway.core.sequence import Sequence
from headway.ops.interface import F32

_LARGEST, _SMALLEST = float(np.finfo(np.float32).max), float(np.finfo(np.float32).tiny)
_FEW = 64  # tokens at first


class TokenCounts:
    """Counts of one sequence, brought up to date by the tokens it has gained since.

    `ids` are the distinct tokens of its output, and of its prompt where that matters; `times` says
    how often each came in the output.
    """

    def __init__(self, num_prompt_tokens: int, *, with_prompt: bool) -> None:
        self._num_prompt_tokens = num_prompt_tokens
        self._num_counted = 0 if with_prompt else num_prompt_tokens
        self._place_of: dict[int, int] = {}
        self._ids = np.empty(_FEW, np.int64)
        self._times = np.zeros(_FEW, np.float32)

    def catch_up(self, token_ids: list[int]) -> None:
        """Count the tokens of the whole sequence that have not been counted yet."""
        for position in range(self._num_counted, len(token_ids)):
            place = self._place(token_ids[position])
            self._times[place] += position >= self._num_prompt_tokens
        self._num_counted = max(self._num_counted, len(token_ids))

    def _place(self, token_id: int) -> int:
        place = self._place_of.setdefault(token_id, len(self._place_of))
        if place == len(self._ids):
            self._ids = np.concatenate((self._ids, np.empty_like(self._ids)))
            self._times = np.concatenate((self._times, np.zeros_like(self._times)))
        self._ids[place] = token_id
        return place

    @property
    def ids(self) -> npt.NDArray[np.int64]:
        return self._ids[: len(self._place_of)]

    @property
    def times(self) -> F32:
        return self._times[: len(self._place_of)]


def counts_for(sequence: Sequence) -> TokenCounts:
    """Nothing counted yet. Only the repetition penalty looks at the prompt."""
    repetition = sequence.request.sampling.repetition_penalty
    return TokenCounts(sequence.num_prompt_tokens, with_prompt=repetition != 1.0)


def penalise(
    logits: F32, rows: list[int], sequences: SequenceOf[Sequence], counts: SequenceOf[TokenCounts]
) -> None:
    """Repetition, then frequency and presence, for all those rows of `logits` at once."""
    lengths = [len(one.ids) for one in counts]

    def spread(values: SequenceOf[float], dtype: type = np.float32) -> npt.NDArray[np.float32]:
        return np.repeat(np.array(values, dtype), lengths)

    params = [sequence.request.sampling for sequence in sequences]
    places = (spread(rows, np.int64), np.concatenate([one.ids for one in counts]))
    times = np.concatenate([one.times for one in counts])
    found = logits[places]
    if any(p.repetition_penalty != 1.0 for p in params):
        by = spread([min(max(p.repetition_penalty, _SMALLEST), _LARGEST) for p in params])
        with np.errstate(over="ignore", under="ignore"):
            found = np.minimum(np.where(found > 0, found / by, found * by), _LARGEST)
    found -= spread([p.frequency_penalty for p in params]) * times
    found -= np.where(times > 0, spread([p.presence_penalty for p in params]), np.float32(0))
    logits[places] = found
