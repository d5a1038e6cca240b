"""POST /v1/responses, for text and without memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from headway.core.request import Request
from headway.server.answering import (
    Envelope,
    answer,
    delivery_of,
    envelope,
)
from headway.server.arrival import arrive
from headway.server.errors import ApiError, Problem, invalid_value
from headway.server.frontend import frontend_of, ignored_header
from headway.server.openapi import GENERATION_PROBLEMS, documented
from headway.server.params import clamped_header
from headway.server.responses_writer import ResponsesWriter
from headway.server.schema.bodies import ChatBody
from headway.server.schema.fields import UNSUPPORTED_RESPONSES
from headway.server.schema.responses import EVENTS, ResponseObject, ResponsesBody

router = APIRouter()
_SHARED = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
    "stop",
    "ignore_eos",
    "stream",
    "priority",
    "request_id",
    "cache_salt",
    "chat_template_kwargs",
)
_TEXT_PARTS = ("text", "input_text", "output_text")


@router.post(
    "/v1/responses",
    **documented(ResponseObject, ResponsesBody, stream=EVENTS, problems=GENERATION_PROBLEMS),
)
async def create_response(http: HttpRequest) -> Response:
    """Answer an input; the client keeps the conversation."""
    frontend = frontend_of(http)
    parsed = await frontend.read(http, ResponsesBody, unsupported=UNSUPPORTED_RESPONSES)
    body = parsed.body
    _check(body)
    chat = _as_chat(body)
    frontend.door.check_fields(chat)
    arrival = arrive(http, frontend.settings, body.request_id)
    head = envelope(http, "resp", body.model, arrival, explain=body.explain)
    frontend.check_room(1, arrival.tenant)
    text = await frontend.renderer.render(chat.messages, chat)
    prompt = await frontend.encode(text, add_special_tokens=False)
    request = frontend.door.chat_request(head.id, prompt, chat, arrival)
    headers = ignored_header(parsed.ignored)
    headers |= clamped_header(body.max_output_tokens, [request])
    return await answer(
        http,
        frontend,
        [request],
        delivery_of(frontend, chat, follows_text=False),
        lambda call: ResponsesWriter(_blank(body, head, request), call, head.asker),
        headers,
    )


def _check(body: ResponsesBody) -> None:
    limit = body.max_output_tokens
    if limit is not None and limit < 1:
        raise invalid_value(
            f"max_output_tokens must be at least 1, got {limit}", "max_output_tokens"
        )
    form = body.text.format if body.text is not None else None
    if form is not None and form.type != "text":
        raise ApiError(
            Problem.UNSUPPORTED,
            'structured output is not supported yet: text.format.type may only be "text"',
            "text.format.type",
        )


def _as_chat(body: ResponsesBody) -> ChatBody:
    shared = {name: getattr(body, name) for name in _SHARED}
    messages = _messages(body.input)
    if body.instructions is not None:
        messages.insert(0, {"role": "system", "content": body.instructions})
    return ChatBody(messages=messages, max_completion_tokens=body.max_output_tokens, **shared)


def _messages(items: str | Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    if isinstance(items, str):
        return [{"role": "user", "content": items}]
    if not items:
        raise invalid_value("input is empty: give a text or at least one message", "input")
    return [_message(item, f"input[{index}]") for index, item in enumerate(items)]


def _message(item: dict[str, Any], where: str) -> dict[str, Any]:
    kind = item.get("type", "message")
    if kind != "message":
        raise ApiError(
            Problem.UNSUPPORTED, f"{where}: items of type {kind!r} are not supported yet", where
        )
    if not isinstance(item.get("role"), str):
        raise ApiError(Problem.INVALID_TYPE, f"{where}.role must be a string", f"{where}.role")
    return {"role": item["role"], "content": _content(item.get("content"), f"{where}.content")}


def _content(content: Any, where: str) -> str | list[dict[str, str]]:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise ApiError(Problem.INVALID_TYPE, f"{where} must be a string or text parts", where)
    for part in content:
        if not isinstance(part, dict) or part.get("type") not in _TEXT_PARTS:
            raise ApiError(Problem.UNSUPPORTED, f"{where}: this model reads text parts only", where)
        if not isinstance(part.get("text"), str):
            raise ApiError(Problem.INVALID_TYPE, f"{where}: a text part needs a text", where)
    return [{"type": "text", "text": part["text"]} for part in content]


def _blank(body: ResponsesBody, head: Envelope, request: Request) -> ResponseObject:
    """The answer before it has begun."""
    return ResponseObject(
        id=head.id,
        created_at=head.created,
        status="in_progress",
        model=head.model,
        output=[],
        instructions=body.instructions,
        max_output_tokens=body.max_output_tokens,
        temperature=request.sampling.temperature,
        top_p=request.sampling.top_p,
        metadata=body.metadata or {},
    )
