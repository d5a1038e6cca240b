"""What a client may send to the endpoints that generate text.

None means that the client said nothing; a null is the same as a field left out. The limits in
the annotations are documentation: `core.request.SamplingParams` and `server.params` check them,
with sentences.
"""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct


def _limits(description: str, **schema: Any) -> Meta:
    return Meta(description=description, extra_json_schema=schema or None)


TokenIds = Annotated[
    list[int], Meta(extra_json_schema={"items": {"type": "integer", "minimum": 0}})
]
_TEXT_PART = {
    "type": "object",
    "properties": {"type": {"const": "text"}, "text": {"type": "string"}},
    "required": ["type", "text"],
}
_MESSAGE = {
    "type": "object",
    "properties": {
        "role": {"type": "string"},
        "content": {"anyOf": [{"type": "string"}, {"type": "array", "items": _TEXT_PART}]},
        "name": {"type": "string"},
    },
    "required": ["role", "content"],
}
Messages = Annotated[
    list[dict[str, Any]],
    _limits("The conversation so far, oldest first.", items=_MESSAGE, minItems=1),
]


class StreamOptions(Struct):
    include_usage: bool = False
    continuous_usage_stats: bool = False


class Repetition(Struct):
    """End a choice when its last tokens are one pattern, `min_count` times in a row."""

    max_pattern_size: Annotated[int, _limits("tokens", minimum=1)]
    min_pattern_size: Annotated[int, _limits("tokens; 0 means 1", minimum=0)] = 0
    min_count: Annotated[int, _limits("repetitions", minimum=2)] = 2


class GenerationBody(Struct, kw_only=True):
    """Fields of both endpoints.

    A field whose name `SamplingParams` has too is passed on under that name.
    """

    model: Annotated[str | None, Meta(description="One of /v1/models; the first if absent.")] = None
    n: Annotated[int | None, _limits("Choices per prompt.", minimum=1, maximum=1024)] = None
    max_tokens: Annotated[int | None, _limits("Longest output, in tokens.", minimum=0)] = None
    min_tokens: Annotated[int | None, _limits("No end before this many.", minimum=0)] = None
    temperature: Annotated[float | None, _limits("0 is greedy.", minimum=0)] = None
    top_p: Annotated[float | None, _limits("", exclusiveMinimum=0, maximum=1)] = None
    top_k: Annotated[int | None, _limits("0 or -1 is off.", minimum=-1)] = None
    min_p: Annotated[float | None, _limits("", minimum=0, maximum=1)] = None
    presence_penalty: Annotated[float | None, _limits("", minimum=-2, maximum=2)] = None
    frequency_penalty: Annotated[float | None, _limits("", minimum=-2, maximum=2)] = None
    repetition_penalty: Annotated[float | None, _limits("", exclusiveMinimum=0)] = None
    logit_bias: dict[int, float] | None = None
    allowed_token_ids: Annotated[TokenIds | None, Meta(description="No other token is chosen.")] = (
        None
    )
    bad_words: Annotated[list[str] | None, Meta(description="Never completed in the output.")] = (
        None
    )
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: TokenIds | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    repetition_detection: Repetition | None = None
    prompt_logprobs: Annotated[int | None, _limits("Not with stream.", minimum=0)] = None
    truncate_prompt_tokens: Annotated[
        int | None,
        _limits("Keep the last k tokens; -1: what leaves room for max_tokens.", minimum=-1),
    ] = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    stream_interval: Annotated[int | None, _limits("Tokens of a choice per chunk.", minimum=1)] = (
        None
    )
    add_special_tokens: bool | None = None
    echo: bool = False
    priority: Annotated[int, Meta(description="Lower is more urgent.")] = 0
    request_id: Annotated[str | None, Meta(description="The answer's id ends in it.")] = None
    cache_salt: Annotated[
        str | None, _limits("Prefix-cache entries are shared within one salt.", minLength=1)
    ] = None
    return_token_ids: bool = False
    return_tokens_as_token_ids: bool | None = None
    include_metrics: Annotated[
        bool, Meta(description="Timings of this request, in the answer.")
    ] = False
    explain: Annotated[bool, Meta(description="Where this request's time went, in the answer.")] = (
        False
    )
    trace_decode_token_ids: Annotated[
        TokenIds | None, Meta(description="The output, given beforehand; the model scores it.")
    ] = None


class CompletionBody(GenerationBody, kw_only=True):
    prompt: Annotated[
        str | list[str | int | list[int]],
        Meta(description="A text, token ids, or a list of either: all of one kind."),
    ]
    logprobs: Annotated[int | None, _limits("Alternatives per token.", minimum=0)] = None


class ChatBody(GenerationBody, kw_only=True):
    messages: Messages
    max_completion_tokens: Annotated[int | None, _limits("Before max_tokens.", minimum=1)] = None
    logprobs: bool = False
    top_logprobs: Annotated[int | None, _limits("Needs logprobs.", minimum=0)] = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    chat_template: Annotated[
        str | None, Meta(description="Needs --trust-request-chat-template.")
    ] = None
    chat_template_kwargs: dict[str, Any] | None = None


class TokenizeBody(Struct, kw_only=True):
    """Either `prompt` or `messages`."""

    model: str | None = None
    prompt: str | None = None
    messages: Messages | None = None
    add_special_tokens: bool | None = None
    return_token_strs: bool = False
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None


class DetokenizeBody(Struct, kw_only=True):
    model: str | None = None
    tokens: TokenIds
