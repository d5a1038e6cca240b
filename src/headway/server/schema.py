"""Request bodies: the fields, their types, and the fields that are known but not served."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import msgspec

from headway.server.errors import ApiError, Problem


class StreamOptions(msgspec.Struct):
    include_usage: bool = False
    continuous_usage_stats: bool = False


class CommonBody(msgspec.Struct, kw_only=True):
    """Fields of both endpoints; None means that the client said nothing.

    A field whose name `SamplingParams` has too is passed on under that name.
    """

    model: str | None = None
    n: int | None = None
    max_tokens: int | None = None
    min_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    stop_token_ids: list[int] | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    skip_special_tokens: bool | None = None
    prompt_logprobs: int | None = None
    stream: bool = False
    stream_options: StreamOptions | None = None
    add_special_tokens: bool | None = None
    echo: bool = False
    priority: int = 0
    cache_salt: str = ""
    user: str | None = None


class CompletionBody(CommonBody, kw_only=True):
    prompt: str | list[str | int | list[int]]
    logprobs: int | None = None


class ChatBody(CommonBody, kw_only=True):
    messages: list[dict[str, Any]]
    max_completion_tokens: int | None = None
    logprobs: bool = False
    top_logprobs: int | None = None
    add_generation_prompt: bool = True
    continue_final_message: bool = False
    chat_template_kwargs: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A field that is known and changes the answer, so that ignoring it would be a lie."""

    sentence: str
    is_neutral: Callable[[Any, Mapping[str, Any]], bool] = lambda value, body: not value


def _at_most_n(value: Any, body: Mapping[str, Any]) -> bool:
    num_choices = body.get("n", 1)
    # A wrong n has an error of its own.
    return isinstance(value, int) and not (isinstance(num_choices, int) and value > num_choices)


_TOOLS = "tool calls are not supported yet: leave {field} out"
_GRAMMAR = "structured output is not supported yet: leave {field} out"
_NOT_YET = "{field} is not supported yet: leave it out"
_TEXT_ONLY = "this model reads and writes text only: leave {field} out"

UNSUPPORTED: dict[str, Unsupported] = {
    "tools": Unsupported(_TOOLS),
    "tool_choice": Unsupported(
        "tool calls are not supported yet: {field} may only be none or auto",
        lambda value, body: value in ("none", "auto"),
    ),
    "functions": Unsupported(_TOOLS),
    "function_call": Unsupported(_TOOLS, lambda value, body: value in ("none", "auto")),
    "response_format": Unsupported(
        'structured output is not supported yet: {field} may only be {{"type": "text"}}',
        lambda value, body: isinstance(value, dict) and value.get("type") == "text",
    ),
    "structured_outputs": Unsupported(_GRAMMAR),
    "guided_json": Unsupported(_GRAMMAR),
    "guided_regex": Unsupported(_GRAMMAR),
    "guided_choice": Unsupported(_GRAMMAR),
    "guided_grammar": Unsupported(_GRAMMAR),
    "suffix": Unsupported("no model here fills in the middle: leave {field} out"),
    "best_of": Unsupported("{field} may not be larger than n: ask for n choices", _at_most_n),
    "use_beam_search": Unsupported("beam search is not supported: leave {field} out"),
    "logits_processors": Unsupported("no code from a request is run: leave {field} out"),
    "prompt_embeds": Unsupported(_NOT_YET),
    "truncate_prompt_tokens": Unsupported(_NOT_YET),
    "allowed_token_ids": Unsupported(_NOT_YET),
    "bad_words": Unsupported(_NOT_YET),
    "chat_template": Unsupported(
        "a template from a request is not run: start the server with --chat-template"
    ),
    "documents": Unsupported(_NOT_YET),
    "audio": Unsupported(_TEXT_ONLY),
    "modalities": Unsupported(_TEXT_ONLY, lambda value, body: value == ["text"]),
    "web_search_options": Unsupported(_NOT_YET, lambda value, body: False),
}

Body = TypeVar("Body", bound=CommonBody)


@dataclass(frozen=True, slots=True)
class Parsed(Generic[Body]):
    body: Body
    ignored: tuple[str, ...]  # fields that nobody here knows, in the client's order


def parse(raw: bytes, body_type: type[Body]) -> Parsed[Body]:
    """Raises ApiError that names the field at fault. A null is the same as a field left out."""
    values = {name: value for name, value in _read_object(raw).items() if value is not None}
    for name, rule in UNSUPPORTED.items():
        if name in values and not rule.is_neutral(values[name], values):
            sentence = rule.sentence.format(field=name)
            raise ApiError(Problem.UNSUPPORTED, sentence, name)
    known = body_type.__struct_fields__
    ignored = tuple(name for name in values if name not in known and name not in UNSUPPORTED)
    try:
        return Parsed(msgspec.convert(values, body_type, str_keys=True), ignored)
    except msgspec.ValidationError as error:
        raise _type_error(str(error)) from None


def _read_object(raw: bytes) -> dict[str, Any]:
    try:
        values = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(Problem.INVALID_JSON, f"the body is not valid JSON: {error}") from None
    if not isinstance(values, dict):
        raise ApiError(Problem.INVALID_JSON, "the body must be a JSON object")
    return values


def _type_error(message: str) -> ApiError:
    """msgspec says `Expected ..., got ... - at `$.path``; OpenAI wants the path in `param`."""
    missing = re.search(r"missing required field `(\w+)`", message)
    if missing:
        name = missing[1]
        return ApiError(Problem.MISSING, f"{name} is required", name)
    where = re.search(r" - at `(?:key` in `)?\$\.?([^`]*)`$", message)
    path = where[1] if where else ""
    what = message[: where.start()] if where else message
    return ApiError(Problem.INVALID_TYPE, f"{path or 'body'}: {what}", path or None)
