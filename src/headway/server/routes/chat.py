"""POST /v1/chat/completions."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from headway.server.errors import ApiError, Problem, invalid_value
from headway.server.frontend import Frontend, frontend_of, ignored_header, new_id
from headway.server.generation import ChoiceDelta, Generation
from headway.server.logprobs import chat_logprobs, prompt_logprobs
from headway.server.schema import ChatBody
from headway.server.sse import EventStream, frame, until_disconnect

router = APIRouter()


@router.post("/v1/chat/completions")
async def create_chat_completion(http: HttpRequest) -> Response:
    """Answer a conversation, n choices; see the OpenAI API."""
    frontend = frontend_of(http)
    parsed = await frontend.read(http, ChatBody)
    body, headers = parsed.body, ignored_header(parsed.ignored)
    model = frontend.door.check_model(body.model)
    frontend.door.check_fields(body)
    answer_id = new_id("chatcmpl")
    text = await _render(frontend, body)
    # The template writes the special tokens itself.
    prompt = await frontend.encode(text, add_special_tokens=bool(body.add_special_tokens))
    request = frontend.door.chat_request(answer_id, prompt, body)
    generation = frontend.generate([request])
    answer = _Answer(frontend, answer_id, model, body, generation)
    try:
        if not body.stream:
            return JSONResponse(await until_disconnect(http, answer.collect()), headers=headers)
        await until_disconnect(http, generation.accepted())
        return EventStream(answer.frames(), generation.close, headers)
    except BaseException:
        generation.close()
        raise


async def _render(frontend: Frontend, body: ChatBody) -> str:
    if frontend.template is None:
        raise ApiError(
            Problem.UNSUPPORTED,
            "this model has no chat template: use /v1/completions, or start the server with "
            "--chat-template",
            "messages",
        )
    _check_messages(body.messages)
    _check_template_options(body)
    try:
        return await asyncio.to_thread(
            frontend.template.render,
            body.messages,
            **(body.chat_template_kwargs or {}),
            add_generation_prompt=body.add_generation_prompt and not body.continue_final_message,
            continue_final_message=body.continue_final_message,
        )
    except ValueError as error:
        raise invalid_value(str(error), "messages") from None


def _check_template_options(body: ChatBody) -> None:
    if body.echo:
        raise ApiError(Problem.UNSUPPORTED, "echo is for /v1/completions: leave it out", "echo")
    taken = {"messages", "add_generation_prompt", "continue_final_message", "tools", "documents"}
    for name in body.chat_template_kwargs or {}:
        if name in taken:
            raise invalid_value(
                f"chat_template_kwargs may not set {name}", f"chat_template_kwargs.{name}"
            )


def _check_messages(messages: Sequence[dict[str, Any]]) -> None:
    if not messages:
        raise invalid_value("messages is empty: it must have at least one message", "messages")
    for index, message in enumerate(messages):
        where = f"messages[{index}]"
        if not isinstance(message.get("role"), str):
            raise ApiError(Problem.INVALID_TYPE, f"{where}.role must be a string", f"{where}.role")
        if message.get("tool_calls") or message["role"] in ("tool", "function"):
            raise ApiError(Problem.UNSUPPORTED, f"{where}: tool calls are not supported yet", where)
        _check_content(message.get("content"), f"{where}.content")


def _check_content(content: Any, where: str) -> None:
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise ApiError(
            Problem.INVALID_TYPE, f"{where} must be a string or a list of text parts", where
        )
    for part in content:
        if not isinstance(part, dict) or part.get("type") != "text":
            raise ApiError(Problem.UNSUPPORTED, f"{where}: this model reads text parts only", where)
        if not isinstance(part.get("text"), str):
            raise ApiError(Problem.INVALID_TYPE, f"{where}: a text part needs a text", where)


class _Answer:
    """Writes one generation in the chat shapes."""

    def __init__(
        self,
        frontend: Frontend,
        answer_id: str,
        model: str,
        body: ChatBody,
        generation: Generation,
    ) -> None:
        self._tokenizer = frontend.tokenizer
        self._body = body
        self._generation = generation
        self._answer_id = answer_id
        self._created = int(time.time())
        self._model = model
        self._fingerprint = frontend.system_fingerprint

    async def collect(self) -> dict[str, Any]:
        choices = [
            {"index": i, "message": {"role": "assistant", "content": ""}, "logprobs": None}
            for i in range(self._generation.num_choices)
        ]
        try:
            async for delta in self._generation.deltas():
                self._add(choices[delta.index], delta)
        finally:
            self._generation.close()
        answer = self._chunk("chat.completion", choices)
        answer["usage"] = self._generation.usage.body()
        if self._body.prompt_logprobs is not None:
            known = self._generation.prompt_logprobs.get(self._answer_id, [None])
            answer["prompt_logprobs"] = prompt_logprobs(self._tokenizer, known)
        return answer

    async def frames(self) -> AsyncIterator[bytes]:
        for index in range(self._generation.num_choices):
            opening = {"role": "assistant", "content": ""}
            yield self._frame([self._choice(index, opening, None, None, None)])
        async for delta in self._generation.deltas():
            content = {"content": delta.text} if delta.text else {}
            reason = None if delta.finish_reason is None else delta.finish_reason.value
            logprobs = self._logprobs(delta)
            yield self._frame(
                [self._choice(delta.index, content, logprobs, reason, delta.stop_reason)]
            )
        options = self._body.stream_options
        if options is not None and options.include_usage:
            chunk = self._chunk("chat.completion.chunk", [])
            yield frame({**chunk, "usage": self._generation.usage.body()})

    def _frame(self, choices: list[dict[str, Any]]) -> bytes:
        chunk = self._chunk("chat.completion.chunk", choices)
        options = self._body.stream_options
        if options is not None and options.include_usage:
            running = options.continuous_usage_stats
            chunk["usage"] = self._generation.usage.body() if running else None
        return frame(chunk)

    def _chunk(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": self._answer_id,
            "object": kind,
            "created": self._created,
            "model": self._model,
            "system_fingerprint": self._fingerprint,
            "choices": choices,
        }

    def _choice(
        self, index: int, delta: dict[str, str], logprobs: Any, finish: Any, stop: Any
    ) -> dict[str, Any]:
        return {
            "index": index,
            "delta": delta,
            "logprobs": logprobs,
            "finish_reason": finish,
            "stop_reason": stop,
        }

    def _logprobs(self, delta: ChoiceDelta) -> Any:
        if not self._body.logprobs:
            return None
        return chat_logprobs(self._tokenizer, delta.logprobs, self._body.top_logprobs or 0)

    def _add(self, choice: dict[str, Any], delta: ChoiceDelta) -> None:
        choice["message"]["content"] += delta.text
        logprobs = self._logprobs(delta)
        if choice["logprobs"] is None:
            choice["logprobs"] = logprobs
        else:
            choice["logprobs"]["content"] += logprobs["content"]
        if delta.finish_reason is not None:
            choice["finish_reason"] = delta.finish_reason.value
            choice["stop_reason"] = delta.stop_reason
