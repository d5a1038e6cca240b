"""One sequence's output as text: detokenizing and stop strings joined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headway.core.request import SamplingParams
from headway.text.detokenizer import Detokenizer
from headway.text.stop_strings import StopStrings
from headway.text.tokenizer import Tokenizer


@dataclass(frozen=True, slots=True)
class Delta:
    """New text to give out. `stopped_by` is the stop string that ended the sequence, or None.

    `num_tokens` is how many of the pushed tokens count as output: fewer than were pushed when a
    stop string completed before the last of them.
    """

    text: str
    stopped_by: str | None = None
    num_tokens: int = 0


class TextAssembler:
    """Deltas of one sequence: whole characters, no part of a stop string, nothing after one.

    A stop string counts only when it completes after the first `sampling.min_tokens` tokens.
    `follows_text`: see `Detokenizer`. A stop token that shall not show is not pushed.
    """

    def __init__(
        self, tokenizer: Tokenizer, sampling: SamplingParams, *, follows_text: bool = False
    ) -> None:
        self._detokenizer = Detokenizer(
            tokenizer,
            skip_special_tokens=sampling.skip_special_tokens,
            follows_text=follows_text,
        )
        stops = tuple(sampling.stop or ())
        self._has_stops = bool(stops)
        self._stops = StopStrings(stops, include=sampling.include_stop_str_in_output)
        self._min_tokens = sampling.min_tokens
        self._num_tokens = 0
        self._is_stopped = False

    @property
    def is_stopped(self) -> bool:
        """Whether a stop string was found: the sequence is to be aborted in the engine."""
        return self._is_stopped

    def push(self, token_ids: Sequence[int]) -> Delta:
        """The text that these tokens make certain; tokens after a stop string are ignored."""
        if self._is_stopped:
            return Delta("")
        if not self._has_stops:
            self._num_tokens += len(token_ids)
            return Delta(self._detokenizer.push(token_ids), None, len(token_ids))
        texts: list[str] = []
        for num_pushed, token_id in enumerate(token_ids, start=1):
            self._num_tokens += 1
            text, stop = self._check(self._detokenizer.push((token_id,)))
            texts.append(text)
            if stop is not None:
                return Delta("".join(texts), stop, num_pushed)
        return Delta("".join(texts), None, len(token_ids))

    def finish(self) -> Delta:
        """What is left when no more tokens come: an unfinished character, held-back text."""
        if self._is_stopped:
            return Delta("")
        text, stop = self._check(self._detokenizer.finish())
        return Delta(text if stop is not None else text + self._stops.flush(), stop)

    def _check(self, text: str) -> tuple[str, str | None]:
        may_stop = self._num_tokens > self._min_tokens
        safe, stop = self._stops.push(text, may_stop=may_stop)
        self._is_stopped = stop is not None
        return safe, stop
