"""Logprobs in the two shapes that OpenAI's API has, and vLLM's for prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headway.text.tokenizer import Tokenizer
from headway.wire import TokenLogprobs

# JSON has no minus infinity; this is the value that clients of the field know.
_LEAST = -9999.0


def chat_logprobs(tokenizer: Tokenizer, positions: Sequence[TokenLogprobs], top: int) -> Any:
    """`content` of a chat choice's logprobs: each token with its bytes and the `top` likeliest."""
    content = []
    for position in positions:
        entry = _chat_token(tokenizer, position.token_id, position.logprob)
        entry["top_logprobs"] = [
            _chat_token(tokenizer, token_id, logprob) for token_id, logprob in position.top[:top]
        ]
        content.append(entry)
    return {"content": content}


class CompletionLogprobs:
    """The four parallel lists of a completion choice; offsets run on from delta to delta."""

    def __init__(self, tokenizer: Tokenizer, top: int) -> None:
        self._tokenizer = tokenizer
        self._top = top
        self._offset = 0

    def render(self, positions: Sequence[TokenLogprobs | None]) -> dict[str, Any]:
        """None stands for a prompt's first token, which nothing predicts."""
        shape: dict[str, Any] = {
            "tokens": [],
            "token_logprobs": [],
            "top_logprobs": [],
            "text_offset": [],
        }
        for position in positions:
            self._add(shape, position)
        return shape

    def render_prompt(
        self, token_ids: Sequence[int], positions: Sequence[TokenLogprobs | None]
    ) -> dict[str, Any]:
        """As `render`, for an echoed prompt, whose first token has a text but no logprob."""
        shape = self.render(positions)
        if token_ids and shape["tokens"] and positions[0] is None:
            first = token_text(self._tokenizer, token_ids[0])
            shape["tokens"][0] = first
            shape["text_offset"][1:] = [o + len(first) for o in shape["text_offset"][1:]]
            self._offset += len(first)
        return shape

    def _add(self, shape: dict[str, Any], position: TokenLogprobs | None) -> None:
        text = "" if position is None else token_text(self._tokenizer, position.token_id)
        shape["tokens"].append(text)
        shape["text_offset"].append(self._offset)
        self._offset += len(text)
        if position is None:
            shape["token_logprobs"].append(None)
            shape["top_logprobs"].append(None)
            return
        shape["token_logprobs"].append(_finite(position.logprob))
        top = {token_text(self._tokenizer, i): _finite(p) for i, p in position.top[: self._top]}
        top.setdefault(text, _finite(position.logprob))
        shape["top_logprobs"].append(top)


def prompt_logprobs(
    tokenizer: Tokenizer, positions: Sequence[TokenLogprobs | None]
) -> list[dict[str, Any] | None]:
    """vLLM's shape: per position, token id → logprob, rank and text; None for the first."""
    return [
        None if position is None else _prompt_position(tokenizer, position)
        for position in positions
    ]


def token_text(tokenizer: Tokenizer, token_id: int) -> str:
    """The token alone as text; special tokens show, half a character is U+FFFD."""
    return tokenizer.token_bytes(token_id).decode("utf-8", "replace")


def _prompt_position(tokenizer: Tokenizer, position: TokenLogprobs) -> dict[str, Any]:
    ranked = [(i, p, rank) for rank, (i, p) in enumerate(position.top, start=1)]
    if position.token_id not in [i for i, _, _ in ranked]:
        ranked.insert(0, (position.token_id, position.logprob, position.rank))
    return {
        str(token_id): {
            "logprob": _finite(logprob),
            "rank": rank,
            "decoded_token": token_text(tokenizer, token_id),
        }
        for token_id, logprob, rank in ranked
    }


def _chat_token(tokenizer: Tokenizer, token_id: int, logprob: float) -> dict[str, Any]:
    return {
        "token": token_text(tokenizer, token_id),
        "logprob": _finite(logprob),
        "bytes": list(tokenizer.token_bytes(token_id)),
    }


def _finite(logprob: float) -> float:
    return max(logprob, _LEAST)
