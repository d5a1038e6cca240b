"""How long steps take now, learned from those that were run."""

from __future__ import annotations

_MEMORY = 5  # a step weighs 1/32 less with each that follows
_SCALE = 16  # bits behind the point, so that what fades loses nothing that matters


class Pace:
    """A straight line through recent steps: their time over their prompt tokens, least squares.

    It is about steps as they are now; one for a batch twice as large is another line. Nanoseconds,
    whole numbers; before the first step all is 0. A step that the host held up weighs less than a
    hundredth after 145 others.
    """

    def __init__(self) -> None:
        self.step_ns = 0  # the mean of steps, prompts in them or not: from token to token
        self.start_ns = 0  # of a step without a prompt
        self._token_ns = 0  # that a prompt token adds, in 1/65536
        self._weight = 0
        self._tokens = 0
        self._span = 0
        self._tokens_squared = 0
        self._tokens_span = 0

    def learn(self, num_prefill_tokens: int, span_ns: int) -> None:
        """A step with so many prompt tokens took so long."""
        x, y = num_prefill_tokens, span_ns
        self._weight = _faded(self._weight, 1)
        self._tokens = _faded(self._tokens, x)
        self._span = _faded(self._span, y)
        self._tokens_squared = _faded(self._tokens_squared, x * x)
        self._tokens_span = _faded(self._tokens_span, x * y)
        self.step_ns = self._span // self._weight
        if self._tokens >> (_SCALE - 3):  # or the latest prompts are all but forgotten
            self._token_ns = self._slope()
        self.start_ns = max(0, self.step_ns - self._prompt_ns(self._tokens // self._weight))

    def _slope(self) -> int:
        n, x, y = self._weight, self._tokens, self._span
        most = (y << 16) // x
        spread = n * self._tokens_squared - x * x
        if 16 * spread <= x * x:
            return most  # all alike: what a token adds cannot be told from what a step takes
        slope = ((n * self._tokens_span - x * y) << 16) // spread
        return max(0, min(slope, most))

    def _prompt_ns(self, num_tokens: int) -> int:
        return self._token_ns * num_tokens >> 16

    def prefill_ns(self, num_tokens: int) -> int:
        """Of a prompt with so many tokens to compute, to its first output."""
        return self.start_ns + self._prompt_ns(num_tokens)


def _faded(total: int, value: int) -> int:
    return total - (total >> _MEMORY) + (value << _SCALE)
