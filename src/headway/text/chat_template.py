"""Chat messages to a prompt, by the template that came with the model."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2

from headway.text.template_sandbox import TemplateLimitError, TemplateSandbox
from headway.text.tokenizer import Tokenizer

Message = Mapping[str, Any]

_MAX_SOURCE_CHARS = 2**20
# Plain letters: templates strip, split and search, but none of them looks for this.
_PROBE = "HEADWAYPROBE"
_CONTINUE_HERE = "HEADWAYCONTINUESHERE"


class ChatTemplateError(ValueError):
    """The template, or the messages given to it, cannot be rendered; the message says why."""


class ChatTemplate:
    """A compiled template. `content_format` is what it wants a message's content to be.

    "string": plain text; "parts": a list of {"type": "text", "text": ...}; None: found out by
    trying. Messages of either form are converted. `now` is what `strftime_now` reads. Raises
    ChatTemplateError when the source is missing or is no template.
    """

    def __init__(
        self,
        source: str | None,
        *,
        bos_token: str | None = None,
        eos_token: str | None = None,
        content_format: str | None = None,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        self.source = _checked_source(source)
        self._tokens = {"bos_token": bos_token or "", "eos_token": eos_token or ""}
        self._sandbox = TemplateSandbox(now)
        self._lock = threading.Lock()
        try:
            self._template = self._sandbox.from_string(self.source)
        except (jinja2.TemplateError, RecursionError, ValueError, SyntaxError) as error:
            raise ChatTemplateError(f"the chat template does not compile: {error}") from error
        self.content_format = content_format or self._detect_content_format()

    def render(
        self,
        messages: Sequence[Message],
        /,  # so that `variables` may have any name, "self" too
        *,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        documents: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> str:
        """The prompt, special tokens included: encode it with add_special_tokens=False.

        With `continue_final_message` it ends inside the last message, for the model to go on.
        Raises ChatTemplateError with a sentence when the template refuses or fails.
        """
        if continue_final_message and add_generation_prompt:
            raise ChatTemplateError(
                "add_generation_prompt begins a new message and continue_final_message goes on "
                "with the last one: set only one of them"
            )
        chat = [self._prepared(message) for message in messages]
        variables |= {"add_generation_prompt": add_generation_prompt}
        variables |= {"tools": tools or None, "documents": documents or None}
        if not continue_final_message:
            return self._run(chat, variables)
        return self._run_unfinished(chat, variables)

    def _run(self, chat: list[dict[str, Any]], variables: Mapping[str, Any]) -> str:
        with self._lock:
            self._sandbox.start_render(len(chat))
            try:
                return self._template.render({**self._tokens, **variables, "messages": chat})
            except jinja2.TemplateError as error:
                raise ChatTemplateError(f"the chat template refused: {error}") from error
            except RecursionError as error:
                raise ChatTemplateError(
                    "the chat template calls itself without end, "
                    "or prints a value that is nested too deep"
                ) from error
            except Exception as error:
                # A template can run into any error of the values it is given.
                reason = f"{type(error).__name__}: {error}"
                raise ChatTemplateError(f"the chat template failed: {reason}") from error

    def _run_unfinished(self, chat: list[dict[str, Any]], variables: Mapping[str, Any]) -> str:
        if not chat:
            raise ChatTemplateError("continue_final_message needs a message to continue")
        mark = f"{_CONTINUE_HERE} "
        chat[-1]["content"] = _with_mark(chat[-1].get("content"), mark)
        text = self._run(chat, variables)
        end = text.rfind(_CONTINUE_HERE)
        if end < 0:
            raise ChatTemplateError(
                "continue_final_message does not work with this model: "
                "its chat template leaves the end of the last message out"
            )
        # A template that trimmed the mark's space would have trimmed the message's own too.
        return text[:end] if text.startswith(mark, end) else text[:end].rstrip()

    def _prepared(self, message: Message) -> dict[str, Any]:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise ChatTemplateError("every message must be an object with a role")
        prepared = dict(message)
        if prepared.get("content") is not None:
            prepared["content"] = self._content(prepared["content"])
        if isinstance(calls := prepared.get("tool_calls"), Sequence):
            prepared["tool_calls"] = [_with_parsed_arguments(call) for call in calls]
        return prepared

    def _content(self, content: object) -> object:
        texts = _texts_of(content)
        if self.content_format == "parts":
            return [{"type": "text", "text": text} for text in texts]
        return "\n".join(texts)

    def _detect_content_format(self) -> str:
        """Try: whether text shows unchanged tells what the template does with it."""
        self.content_format = "string"
        for form in ("string", "parts"):
            self.content_format = form
            if any(_PROBE in text for text in self._probe([{"role": "user", "content": _PROBE}])):
                return form
        return "string"

    def _probe(self, chat: list[dict[str, str]]) -> list[str]:
        """What the template makes of `chat`, alone and after a system message, where it can."""
        texts = []
        for messages in (chat, [{"role": "system", "content": "system"}, *chat]):
            try:
                texts.append(self.render(messages, add_generation_prompt=False))
            except ChatTemplateError as error:
                if isinstance(error.__cause__, TemplateLimitError):
                    raise
        return texts

    def text_after_reply(self) -> str | None:
        """What the template writes right after an assistant's text; None when it shows none."""
        chat = [
            {"role": "user", "content": "user"},
            {"role": "assistant", "content": _PROBE},
        ]
        for text in self._probe(chat):
            if _PROBE in text:
                return text[text.rindex(_PROBE) + len(_PROBE) :]
        return None


def end_token_ids(template: ChatTemplate, tokenizer: Tokenizer) -> list[int]:
    """The token by which this template ends an assistant's turn: one id, or none.

    Only a token that stands outside ordinary text counts, never a word.
    """
    after = (template.text_after_reply() or "").lstrip()
    ids = tokenizer.encode(after, add_special_tokens=False)
    return [token_id for token_id in ids[:1] if token_id in tokenizer.added_ids]


def _checked_source(source: str | None) -> str:
    if source is None:
        raise ChatTemplateError(
            "this model has no chat template: name one with --chat-template, "
            "or use /v1/completions with a prompt"
        )
    if len(source) > _MAX_SOURCE_CHARS:
        raise ChatTemplateError(
            f"the chat template has {len(source)} characters, more than {_MAX_SOURCE_CHARS}"
        )
    return source


def _texts_of(content: object) -> list[str]:
    if isinstance(content, str):
        return [content]
    if not isinstance(content, Sequence):
        raise ChatTemplateError(
            f"a message's content must be a string or a list of parts, got {type(content).__name__}"
        )
    return [_text_of_part(part) for part in content]


def _text_of_part(part: object) -> str:
    if isinstance(part, str):
        return part
    kind = part.get("type") if isinstance(part, Mapping) else None
    text = part.get("text") if isinstance(part, Mapping) else None
    if kind not in ("text", "input_text", "output_text", "refusal") or not isinstance(text, str):
        raise ChatTemplateError(
            f"a content part of type {kind!r} cannot be read: this model takes text only, "
            'as {"type": "text", "text": "..."}'
        )
    return text


def _with_mark(content: object, mark: str) -> object:
    if isinstance(content, str):
        return content + mark
    if isinstance(content, list) and content:
        last = content[-1]
        return [*content[:-1], {**last, "text": last["text"] + mark}]
    raise ChatTemplateError("continue_final_message needs a last message with text")


def _with_parsed_arguments(call: object) -> object:
    """Templates print a call's arguments as an object, the API carries them as JSON text."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        return call
    arguments = function.get("arguments")
    if not isinstance(arguments, str):
        return call
    try:
        parsed = json.loads(arguments or "{}")
    except (ValueError, RecursionError) as error:
        raise ChatTemplateError(
            f"the arguments of the tool call {function.get('name')!r} are not valid JSON: {error}"
        ) from error
    return {**call, "function": {**function, "arguments": parsed}}
