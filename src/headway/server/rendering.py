"""Messages to a prompt: which template, which variables, and what a message may hold."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Protocol

from headway.server.config import TEMPLATE_VARIABLES, AppSettings
from headway.server.errors import ApiError, Problem, invalid_value
from headway.text.chat_template import ChatTemplate
from headway.text.tokenizer import Tokenizer

# vLLM's names for the two forms → the template's own.
_CONTENT_FORMATS = {"string": "string", "openai": "parts"}


class Conversation(Protocol):
    """The fields of a body that say how its messages become a prompt."""

    add_generation_prompt: bool | None
    continue_final_message: bool
    chat_template: str | None
    chat_template_kwargs: dict[str, Any] | None


class ChatRenderer:
    """Every method raises ApiError with the field at fault."""

    def __init__(
        self, template: ChatTemplate | None, tokenizer: Tokenizer, settings: AppSettings
    ) -> None:
        self._content_format = _CONTENT_FORMATS.get(settings.chat_template_content_format)
        self._settings = settings
        self._tokenizer = tokenizer
        self._template = template if template is None else self._in_format(template)
        self._compiled = lru_cache(maxsize=16)(self._compile)

    def answer_role(self, messages: Sequence[Mapping[str, Any]], body: Conversation) -> str:
        """Who speaks next: the last speaker where the answer goes on with the last message."""
        if _begins_message(body):
            return self._settings.response_role
        return str(messages[-1]["role"])

    def echoed(self, messages: Sequence[Mapping[str, Any]], role: str) -> str:
        """The last message's text, where it is of the role that answers: what `echo` repeats."""
        last = messages[-1]
        if last["role"] != role:
            return ""
        content = last["content"]
        return content if isinstance(content, str) else "".join(part["text"] for part in content)

    async def render(self, messages: Sequence[dict[str, Any]], body: Conversation) -> str:
        """The prompt, special tokens included."""
        check_messages(messages)
        _check_variables(body)
        variables = {
            **self._settings.default_chat_template_kwargs,
            **(body.chat_template_kwargs or {}),
        }
        try:
            template = await self._choose(body)
            return await asyncio.to_thread(
                template.render,
                messages,
                **variables,
                add_generation_prompt=_begins_message(body),
                continue_final_message=body.continue_final_message,
            )
        except ValueError as error:
            raise invalid_value(str(error), "messages") from None

    async def _choose(self, body: Conversation) -> ChatTemplate:
        if body.chat_template is not None:
            if not self._settings.trust_request_chat_template:
                raise ApiError(
                    Problem.UNSUPPORTED,
                    "a template from a request is not run: leave chat_template out, or start the "
                    "server with --trust-request-chat-template",
                    "chat_template",
                )
            return await asyncio.to_thread(self._compiled, body.chat_template)
        if self._template is None:
            raise ApiError(
                Problem.UNSUPPORTED,
                "this model has no chat template: use /v1/completions, or start the server with "
                "--chat-template",
                "messages",
            )
        return self._template

    def _compile(self, source: str) -> ChatTemplate:
        tokens = self._tokenizer
        return ChatTemplate(
            source,
            bos_token=tokens.bos_token,
            eos_token=tokens.eos_token,
            content_format=self._content_format,
        )

    def _in_format(self, template: ChatTemplate) -> ChatTemplate:
        wanted = self._content_format
        if wanted is None or wanted == template.content_format:
            return template
        return self._compile(template.source)


def check_messages(messages: Sequence[dict[str, Any]]) -> None:
    """Raises ApiError where the messages are not ones that a text model can read."""
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


def _check_variables(body: Conversation) -> None:
    if body.add_generation_prompt and body.continue_final_message:
        raise invalid_value(
            "add_generation_prompt begins a new message and continue_final_message goes on with "
            "the last one: set only one of them",
            "continue_final_message",
        )
    for name in body.chat_template_kwargs or {}:
        if name in TEMPLATE_VARIABLES:
            raise invalid_value(
                f"chat_template_kwargs may not set {name}", f"chat_template_kwargs.{name}"
            )


def _begins_message(body: Conversation) -> bool:
    if body.add_generation_prompt is None:
        return not body.continue_final_message
    return body.add_generation_prompt
