"""Answers of an OpenAI-compatible server, as far as they are compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeVar

import msgspec

from headway.bench.http1 import printable
from headway.insight.verify.difference import Output, Token

Endpoint = Literal["chat", "completions"]
_Told = TypeVar("_Told")


class _Likely(msgspec.Struct):
    token: str
    logprob: float


class _ChatToken(msgspec.Struct):
    token: str
    logprob: float | None = None
    top_logprobs: list[_Likely] | None = None


class _ChatLogprobs(msgspec.Struct):
    content: list[_ChatToken] | None = None


class _Message(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _ChatChoice(msgspec.Struct):
    message: _Message
    logprobs: _ChatLogprobs | None = None
    finish_reason: str | None = None


class _Logprobs(msgspec.Struct):
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(msgspec.Struct):
    text: str
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None


class _Chat(msgspec.Struct):
    choices: list[_ChatChoice]


class _Completion(msgspec.Struct):
    choices: list[_Choice]


class _Problem(msgspec.Struct):
    message: str


class _Refusal(msgspec.Struct):
    error: _Problem | str


class AnswerError(Exception):
    """Not what the API says; the message is one sentence."""


def read_output(endpoint: Endpoint, body: bytes) -> Output:
    """The first choice. Raises AnswerError."""
    if endpoint == "chat":
        return _chat_output(_first(_decoded(body, _Chat).choices))
    return _output(_first(_decoded(body, _Completion).choices))


def refusal_text(status: int, body: bytes) -> str:
    """`HTTP 503: the queue is full`, with the server's own words where it has any."""
    try:
        error = msgspec.json.decode(body, type=_Refusal).error
        said = error if isinstance(error, str) else error.message
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        said = body[:200].decode("utf-8", "replace")
    words = " ".join(said.split())[:300]
    return f"HTTP {status}: {printable(words)}" if words else f"HTTP {status}"


def _decoded(body: bytes, kind: type[_Told]) -> _Told:
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise AnswerError(f"the answer is not what the API says: {error}") from None


def _first(choices: Sequence[_Told]) -> _Told:
    if not choices:
        raise AnswerError("the answer is not what the API says: it has no choices")
    return choices[0]


def _chat_output(choice: _ChatChoice) -> Output:
    said = choice.message
    text = (said.reasoning_content or said.reasoning or "") + (said.content or "")
    told = choice.logprobs.content if choice.logprobs else None
    tokens = None if told is None else tuple(map(_token, told))
    return Output(text, tokens, choice.finish_reason)


def _token(told: _ChatToken) -> Token:
    likeliest = {likely.token: likely.logprob for likely in told.top_logprobs or ()}
    return Token(told.token, told.logprob, likeliest)


def _output(choice: _Choice) -> Output:
    told = choice.logprobs
    if told is None or told.tokens is None:
        return Output(choice.text, None, choice.finish_reason)
    num = len(told.tokens)
    logprobs, likeliest = told.token_logprobs or [None] * num, told.top_logprobs or [None] * num
    if not len(logprobs) == len(likeliest) == num:
        raise AnswerError("the answer is not what the API says: its logprobs differ in length")
    tokens = tuple(map(Token, told.tokens, logprobs, likeliest))
    return Output(choice.text, tokens, choice.finish_reason)
