"""What the generating endpoints send: whole answers, and the chunks of streamed ones.

A field that is UNSET is not sent at all; one that is None is sent as null.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, Struct, UnsetType

from headway.insight.explain.report import Explanation

Finish = Literal["stop", "length", "abort", "repetition"]
# token id → logprob, rank and text; null for the first token, which nothing predicts
PromptLogprobs = list[dict[str, "PromptLogprob"] | None]


class PromptLogprob(Struct, frozen=True):
    logprob: float
    rank: int
    decoded_token: str


class PromptTokensDetails(Struct, frozen=True):
    cached_tokens: int  # found in the prefix cache when the request was first admitted


class CompletionTokensDetails(Struct, frozen=True):
    reasoning_tokens: int = 0


class Usage(Struct, frozen=True):
    """Every prompt counted once, every choice's output."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails = CompletionTokensDetails()


class CompletionLogprobs(Struct):
    """Four lists of one length: an entry for each token."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]

    @classmethod
    def empty(cls) -> CompletionLogprobs:
        return cls([], [], [], [])

    def extend(self, more: CompletionLogprobs) -> None:
        self.text_offset += more.text_offset
        self.token_logprobs += more.token_logprobs
        self.tokens += more.tokens
        self.top_logprobs += more.top_logprobs


class CompletionChoice(Struct):
    index: int
    text: str
    logprobs: CompletionLogprobs | None = None
    finish_reason: Finish | None = None
    stop_reason: int | str | None = None
    prompt_token_ids: list[int] | UnsetType = UNSET
    token_ids: list[int] | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET


class Completion(Struct, kw_only=True):
    """A whole answer, or one chunk of a streamed one."""

    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    system_fingerprint: str | None
    choices: list[CompletionChoice]
    usage: Usage | UnsetType | None = UNSET
    metrics: dict[str, Any] | UnsetType = UNSET
    explain: Explanation | UnsetType = UNSET


class TopLogprob(Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]


class ChatTokenLogprob(Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Struct):
    content: list[ChatTokenLogprob]


class ChatMessage(Struct):
    role: str
    content: str


class ChatChoice(Struct):
    index: int
    message: ChatMessage
    logprobs: ChatLogprobs | None = None
    finish_reason: Finish | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | UnsetType = UNSET


class ChatCompletion(Struct, kw_only=True):
    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    system_fingerprint: str | None
    choices: list[ChatChoice]
    usage: Usage | UnsetType | None = UNSET
    metrics: dict[str, Any] | UnsetType = UNSET
    explain: Explanation | UnsetType = UNSET
    prompt_logprobs: PromptLogprobs | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class ChatDelta(Struct, omit_defaults=True):
    role: str | None = None
    content: str | None = None


class ChatChunkChoice(Struct):
    index: int
    delta: ChatDelta
    logprobs: ChatLogprobs | None = None
    finish_reason: Finish | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | UnsetType = UNSET


class ChatChunk(Struct, kw_only=True):
    id: str
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    created: int
    model: str
    system_fingerprint: str | None
    choices: list[ChatChunkChoice]
    usage: Usage | UnsetType | None = UNSET
    metrics: dict[str, Any] | UnsetType = UNSET
    explain: Explanation | UnsetType = UNSET
    prompt_token_ids: list[int] | UnsetType = UNSET


class ErrorBody(Struct):
    message: str
    type: str
    param: str | None
    code: str


class ErrorAnswer(Struct):
    error: ErrorBody
