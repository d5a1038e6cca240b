"""/v1/responses for text: the body, the answer and the events of a streamed answer."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from headway.insight.explain.report import Explanation


class TextFormat(Struct, frozen=True):
    type: str = "text"


class TextOptions(Struct, frozen=True):
    format: TextFormat | None = None


class ResponsesBody(Struct, kw_only=True):
    """Sampling fields of vLLM that are no part of OpenAI's body are taken here too."""

    input: Annotated[
        str | list[dict[str, Any]],
        Meta(description="A text, or messages: objects with a role and a content."),
    ]
    model: str | None = None
    instructions: Annotated[str | None, Meta(description="Goes first, as system message.")] = None
    max_output_tokens: Annotated[int | None, Meta(extra_json_schema={"minimum": 1})] = None
    temperature: Annotated[float | None, Meta(extra_json_schema={"minimum": 0})] = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repetition_penalty: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    ignore_eos: bool | None = None
    stream: bool = False
    text: TextOptions | None = None
    priority: int = 0
    request_id: str | None = None
    cache_salt: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    metadata: dict[str, str] | None = None
    explain: Annotated[bool, Meta(description="Where this request's time went, in the answer.")] = (
        False
    )


class OutputText(Struct, tag_field="type", tag="output_text"):
    text: str
    annotations: list[dict[str, Any]] = []
    logprobs: list[dict[str, Any]] = []


class OutputMessage(Struct, tag_field="type", tag="message", kw_only=True):
    id: str
    role: str = "assistant"
    status: Literal["in_progress", "completed", "incomplete"]
    content: list[OutputText]


class InputTokensDetails(Struct, frozen=True):
    cached_tokens: int
    cache_write_tokens: int = 0


class OutputTokensDetails(Struct, frozen=True):
    reasoning_tokens: int = 0


class ResponsesUsage(Struct, frozen=True):
    input_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens: int
    output_tokens_details: OutputTokensDetails
    total_tokens: int


class IncompleteDetails(Struct, frozen=True):
    reason: str  # max_output_tokens, or the limit that ended it


class ResponseError(Struct, frozen=True):
    code: str
    message: str


class ResponseObject(Struct, kw_only=True):
    id: str
    object: Literal["response"] = "response"
    created_at: int
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    model: str
    output: list[OutputMessage]
    usage: ResponsesUsage | None = None
    error: ResponseError | None = None
    incomplete_details: IncompleteDetails | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    metadata: dict[str, str] = {}
    text: TextOptions = TextOptions(TextFormat())
    parallel_tool_calls: bool = False
    tool_choice: Literal["none"] = "none"
    tools: list[dict[str, Any]] = []
    previous_response_id: str | None = None
    store: bool = False
    truncation: Literal["disabled"] = "disabled"
    metrics: dict[str, Any] | UnsetType = UNSET
    explain: Explanation | UnsetType = UNSET


class ResponseEvent(Struct, kw_only=True):
    """`response.created`, `.in_progress`, and the one that ends the stream."""

    type: str
    sequence_number: int
    response: ResponseObject


class OutputItemEvent(Struct, kw_only=True):
    """`response.output_item.added` and `.done`."""

    type: str
    sequence_number: int
    output_index: int = 0
    item: OutputMessage


class ContentPartEvent(Struct, kw_only=True):
    """`response.content_part.added` and `.done`."""

    type: str
    sequence_number: int
    item_id: str
    output_index: int = 0
    content_index: int = 0
    part: OutputText


class TextDeltaEvent(Struct, kw_only=True):
    type: Literal["response.output_text.delta"] = "response.output_text.delta"
    sequence_number: int
    item_id: str
    output_index: int = 0
    content_index: int = 0
    delta: str
    logprobs: list[dict[str, Any]] = []


class TextDoneEvent(Struct, kw_only=True):
    type: Literal["response.output_text.done"] = "response.output_text.done"
    sequence_number: int
    item_id: str
    output_index: int = 0
    content_index: int = 0
    text: str
    logprobs: list[dict[str, Any]] = []


EVENTS: tuple[type[Struct], ...] = (
    ResponseEvent,
    OutputItemEvent,
    ContentPartEvent,
    TextDeltaEvent,
    TextDoneEvent,
)
