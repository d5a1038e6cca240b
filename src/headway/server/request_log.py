"""One line per request that reaches the engine, where the operator asks for it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from headway.core.events import Event
from headway.core.request import Request
from headway.text.tokenizer import Tokenizer
from headway.wire import EngineStats

_log = logging.getLogger("headway")
_MAX_TOKENS_PER_CHARACTER = 4


class RequestLog:
    """A fold. Shows the first `max_log_len` characters of a prompt; None or 0: no text at all."""

    def __init__(self, tokenizer: Tokenizer, max_log_len: int | None) -> None:
        self._tokenizer = tokenizer
        self._max_log_len = max_log_len

    def on_submitted(self, request: Request, now_ns: int) -> None:
        sampling = request.sampling
        _log.info(
            "Request %s: %d prompt tokens, n=%d, max_tokens=%s, temperature=%g, seed=%d%s",
            request.request_id,
            request.num_prompt_tokens,
            sampling.n,
            sampling.max_tokens,
            sampling.temperature,
            request.seed,
            self._text(request),
        )

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        """Only arrivals are logged here."""

    def on_stats(self, stats: EngineStats) -> None:
        """Only arrivals are logged here."""

    def _text(self, request: Request) -> str:
        if not self._max_log_len:
            return ""
        beginning = request.prompt_token_ids[: _MAX_TOKENS_PER_CHARACTER * self._max_log_len]
        text = self._tokenizer.decode(beginning, skip_special_tokens=False)
        return f", prompt: {text[: self._max_log_len]!r}"
