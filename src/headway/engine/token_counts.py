"""How often each token stands in a sequence: what the penalties need."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headway.ops.interface import F32


class TokenCounts:
    """Counts of one sequence, brought up to date by the tokens it has gained since."""

    def __init__(self, num_prompt_tokens: int) -> None:
        self._num_prompt_tokens = num_prompt_tokens
        self._num_counted = 0
        self._seen: dict[int, None] = {}
        self._output: dict[int, int] = {}

    def catch_up(self, token_ids: list[int]) -> None:
        """Count the tokens of the whole sequence that have not been counted yet."""
        for position in range(self._num_counted, len(token_ids)):
            token_id = token_ids[position]
            self._seen[token_id] = None
            if position >= self._num_prompt_tokens:
                self._output[token_id] = self._output.get(token_id, 0) + 1
        self._num_counted = len(token_ids)

    def seen_ids(self) -> npt.NDArray[np.int64]:
        """Distinct tokens of prompt and output."""
        return np.fromiter(self._seen, np.int64, len(self._seen))

    def output_counts(self) -> tuple[npt.NDArray[np.int64], F32]:
        """Distinct output tokens and how often each came."""
        ids = np.fromiter(self._output, np.int64, len(self._output))
        return ids, np.fromiter(self._output.values(), np.float32, len(self._output))
