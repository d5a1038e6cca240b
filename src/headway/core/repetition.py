"""Notices that an output goes round in circles."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

from headway.core.request import RepetitionDetection


class RepetitionWatch:
    """Follows one output token by token; O(max_pattern_size) for each.

    For every pattern size p it knows how many of the latest tokens equal the one p before them:

        a b c b c b c    p = 2: the last four do, so "b c" stands there 4 / 2 + 1 = 3 times
    """

    def __init__(self, rule: RepetitionDetection) -> None:
        self._sizes = range(max(1, rule.min_pattern_size), rule.max_pattern_size + 1)
        self._num_equal = [0] * len(self._sizes)
        self._min_count = rule.min_count

    def repeats(self, token_ids: SequenceOf[int], num_output_tokens: int) -> bool:
        """Whether the output, a token longer than at the last call, ends in such a pattern."""
        token_id = token_ids[-1]
        found = False
        for place, size in enumerate(self._sizes):
            if size >= num_output_tokens:
                break
            if token_ids[-1 - size] != token_id:
                self._num_equal[place] = 0
                continue
            self._num_equal[place] += 1
            found = found or self._num_equal[place] >= size * (self._min_count - 1)
        return found
