"""Fields that are known and not served, and fields that are known and change nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

# Labels of the client's own, which promise no effect.
LABELS: dict[str, str] = {
    "user": "who asks",
    "metadata": "notes of the client",
    "safety_identifier": "who asks",
    "session_id": "which conversation",
    "prompt_cache_key": "prefixes are found by their tokens",
}
# Accepted without the effect that a client may expect: named in x-headway-ignored-fields.
NO_EFFECT: dict[str, str] = {
    "store": "answers are not kept",
    "service_tier": "there is one",
    "reasoning_effort": "no model here thinks before it answers",
    "include_reasoning": "no model here thinks before it answers",
    "thinking_token_budget": "no model here thinks before it answers",
    "parallel_tool_calls": "there are no tool calls",
    "spaces_between_special_tokens": "special tokens are shown as they are",
    "length_penalty": "there is no beam search",
    "watermarking": "there is none",
}


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A field that is known and changes the answer, so that ignoring it would be a lie."""

    sentence: str
    is_neutral: Callable[[Any, Mapping[str, Any]], bool] = lambda value, body: not value


def _at_most_n(value: Any, body: Mapping[str, Any]) -> bool:
    num_choices = body.get("n", 1)
    # A wrong n has an error of its own.
    return isinstance(value, int) and not (isinstance(num_choices, int) and value > num_choices)


def _is_text(value: Any, body: Mapping[str, Any]) -> bool:
    return isinstance(value, dict) and value.get("type") == "text"


def _never(value: Any, body: Mapping[str, Any]) -> bool:
    return False


_TOOLS = "tool calls are not supported yet: leave {field} out"
_GRAMMAR = "structured output is not supported yet: leave {field} out"
_NOT_YET = "{field} is not supported yet: leave it out"
_TEXT_ONLY = "this model reads and writes text only: leave {field} out"
_STATELESS = "answers are not kept here, so {field} finds nothing: send the whole conversation"

UNSUPPORTED: dict[str, Unsupported] = {
    "tools": Unsupported(_TOOLS),
    "tool_choice": Unsupported(
        "tool calls are not supported yet: {field} may only be none or auto",
        lambda value, body: value in ("none", "auto"),
    ),
    "functions": Unsupported(_TOOLS),
    "function_call": Unsupported(_TOOLS, lambda value, body: value in ("none", "auto")),
    "response_format": Unsupported(
        'structured output is not supported yet: {field} may only be {{"type": "text"}}', _is_text
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
    "logprob_token_ids": Unsupported(_NOT_YET),
    "truncation_side": Unsupported(
        "a prompt keeps its last tokens: {field} may only be left",
        lambda value, body: value == "left",
    ),
    "prompt_embeds": Unsupported(_NOT_YET),
    "kv_transfer_params": Unsupported(_NOT_YET),
    "vllm_xargs": Unsupported(_NOT_YET),
    "documents": Unsupported(_NOT_YET),
    "mm_processor_kwargs": Unsupported(_TEXT_ONLY),
    "audio": Unsupported(_TEXT_ONLY),
    "modalities": Unsupported(_TEXT_ONLY, lambda value, body: value == ["text"]),
    "prediction": Unsupported(_NOT_YET),
    "web_search_options": Unsupported(_NOT_YET, _never),
}

# Of /v1/responses alone; its tools are those above.
UNSUPPORTED_RESPONSES: dict[str, Unsupported] = {
    name: UNSUPPORTED[name] for name in ("tools", "tool_choice")
} | {
    "previous_response_id": Unsupported(_STATELESS, _never),
    "conversation": Unsupported(_STATELESS, _never),
    "prompt": Unsupported("no prompt templates are kept here: send input and instructions", _never),
    "background": Unsupported("answers are not kept here: {field} may only be false"),
    "include": Unsupported(_NOT_YET),
    "max_tool_calls": Unsupported(_TOOLS, lambda value, body: True),
    "truncation": Unsupported(
        "a prompt is never shortened here: {field} may only be disabled",
        lambda value, body: value == "disabled",
    ),
}
