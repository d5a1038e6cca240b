"""Logprobs in the two shapes that OpenAI's API has, and vLLM's for prompts."""

from __future__ import annotations

from collections.abc import Sequence

from headway.server.schema.answers import (
    ChatLogprobs,
    ChatTokenLogprob,
    CompletionLogprobs,
    PromptLogprob,
    PromptLogprobs,
    TopLogprob,
)
from headway.text.tokenizer import Tokenizer
from headway.wire import TokenLogprobs

# JSON has no minus infinity; this is the value that clients of the field know.
_LEAST = -9999.0


class TokenNames:
    """What a token is called in logprobs: its text, or `token_id:N` where the client wants that."""

    def __init__(self, tokenizer: Tokenizer, *, as_ids: bool) -> None:
        self.tokenizer = tokenizer
        self._as_ids = as_ids

    def name(self, token_id: int) -> str:
        return f"token_id:{token_id}" if self._as_ids else token_text(self.tokenizer, token_id)


class CompletionWriter:
    """The four parallel lists of a completion choice; offsets run on from delta to delta."""

    def __init__(self, names: TokenNames, top: int) -> None:
        self._names = names
        self._top = top
        self._offset = 0

    def write(self, positions: Sequence[TokenLogprobs | None]) -> CompletionLogprobs:
        """None stands for a prompt's first token, which nothing predicts."""
        lists = CompletionLogprobs.empty()
        for position in positions:
            if position is None:
                self._add(lists, "", "", None, None)
            else:
                self._add_known(lists, position)
        return lists

    def write_prompt(
        self, token_ids: Sequence[int], positions: Sequence[TokenLogprobs | None]
    ) -> CompletionLogprobs:
        """As `write`, for an echoed prompt, whose first token has a text but no logprob."""
        if not token_ids or not positions or positions[0] is not None:
            return self.write(positions)
        lists = CompletionLogprobs.empty()
        text = token_text(self._names.tokenizer, token_ids[0])
        self._add(lists, self._names.name(token_ids[0]), text, None, None)
        lists.extend(self.write(positions[1:]))
        return lists

    def _add_known(self, lists: CompletionLogprobs, position: TokenLogprobs) -> None:
        names = self._names
        top = {names.name(i): _finite(p) for i, p in position.top[: self._top]}
        name, logprob = names.name(position.token_id), _finite(position.logprob)
        top.setdefault(name, logprob)
        self._add(lists, name, token_text(names.tokenizer, position.token_id), logprob, top)

    def _add(
        self,
        lists: CompletionLogprobs,
        name: str,
        text: str,
        logprob: float | None,
        top: dict[str, float] | None,
    ) -> None:
        lists.tokens.append(name)
        lists.text_offset.append(self._offset)
        lists.token_logprobs.append(logprob)
        lists.top_logprobs.append(top)
        self._offset += len(text)


def chat_logprobs(names: TokenNames, positions: Sequence[TokenLogprobs], top: int) -> ChatLogprobs:
    """Each token with its bytes and the `top` likeliest."""
    return ChatLogprobs([_chat_position(names, position, top) for position in positions])


def prompt_logprobs(
    tokenizer: Tokenizer, positions: Sequence[TokenLogprobs | None]
) -> PromptLogprobs:
    """vLLM's shape: per position, token id → logprob, rank and text; None for the first."""
    return [
        None if position is None else _prompt_position(tokenizer, position)
        for position in positions
    ]


def token_text(tokenizer: Tokenizer, token_id: int) -> str:
    """The token alone as text; special tokens show, half a character is U+FFFD."""
    return tokenizer.token_bytes(token_id).decode("utf-8", "replace")


def _chat_position(names: TokenNames, position: TokenLogprobs, top: int) -> ChatTokenLogprob:
    likeliest = [
        TopLogprob(names.name(i), _finite(p), list(names.tokenizer.token_bytes(i)))
        for i, p in position.top[:top]
    ]
    token_id = position.token_id
    own_bytes = list(names.tokenizer.token_bytes(token_id))
    return ChatTokenLogprob(names.name(token_id), _finite(position.logprob), own_bytes, likeliest)


def _prompt_position(tokenizer: Tokenizer, position: TokenLogprobs) -> dict[str, PromptLogprob]:
    ranked = [(i, p, rank) for rank, (i, p) in enumerate(position.top, start=1)]
    if position.token_id not in [i for i, _, _ in ranked]:
        ranked.insert(0, (position.token_id, position.logprob, position.rank))
    return {
        str(token_id): PromptLogprob(_finite(logprob), rank, token_text(tokenizer, token_id))
        for token_id, logprob, rank in ranked
    }


def _finite(logprob: float) -> float:
    return max(logprob, _LEAST)
