"""What a request says about tokens, as arrays: made once for it, not once for every token."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from headway.core.request import Request
from headway.core.sequence import Sequence
from headway.ops.interface import F32

Ids = npt.NDArray[np.int64]
_LARGEST = float(np.finfo(np.float32).max)


class TokenTables:
    """Shared by all sequences of the request: a list may name every token of the vocabulary."""

    def __init__(self, request: Request) -> None:
        sampling = request.sampling
        allowed, bias = sampling.allowed_token_ids, sampling.logit_bias
        self.allowed: Ids | None = None if allowed is None else _ids(allowed)
        self._bias_ids = _ids(bias)
        values = np.fromiter(bias.values(), np.float64, len(bias))
        self._biases = np.clip(values, -_LARGEST, _LARGEST).astype(np.float32)
        self._stop_ids = _ids(sorted(request.stop_token_ids))
        words = request.bad_word_ids
        self._always = _ids(word[-1] for word in words if len(word) == 1)
        self._words_after: dict[int, list[tuple[int, ...]]] = {}
        for word in words:
            if len(word) > 1:
                self._words_after.setdefault(word[-2], []).append(word)

    def banned(self, sequence: Sequence, vocab_size: int) -> Ids:
        """Tokens that would complete a bad word, and stop ids before min_tokens."""
        parts = [self._always, _ids(self._completed(sequence))]
        if sequence.num_output_tokens < sequence.request.sampling.min_tokens:
            parts.append(self._stop_ids)
        ids = np.concatenate(parts)
        return ids[ids < vocab_size]

    def add_bias(self, row: F32) -> None:
        row[self._bias_ids] += self._biases

    def _completed(self, sequence: Sequence) -> Iterable[int]:
        if not self._words_after or not sequence.num_output_tokens:
            return ()
        words = self._words_after.get(sequence.token_ids[-1], ())
        return [word[-1] for word in words if _leads_to(sequence, word)]


def _leads_to(sequence: Sequence, word: tuple[int, ...]) -> bool:
    """Whether the output ends in all of the word but its last token."""
    num_before = len(word) - 1
    if num_before > sequence.num_output_tokens:
        return False
    return tuple(sequence.token_ids[-num_before:]) == word[:-1]


def _ids(token_ids: Iterable[int]) -> Ids:
    return np.fromiter(token_ids, np.int64)
