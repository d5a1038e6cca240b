"""Rendered prompts equal those of transformers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import chat_templates
import pytest

from headway.text.chat_template import ChatTemplate
from headway.text.eos import unite_stop_ids
from headway.text.tokenizer_gguf import tokenizer_from_gguf

pytest.importorskip("torch")
pytest.importorskip("transformers")
gguf = pytest.importorskip("gguf")

pytestmark = pytest.mark.golden

SYSTEM = {"role": "system", "content": "You are terse. "}
USER = {"role": "user", "content": "What is 2 < 3 & 'é'?\n\n日本"}
REPLY = {"role": "assistant", "content": "  Yes.  "}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"type": "function", "function": {"name": "add", "arguments": {"b": "<é>"}}}],
}
RESULT = {"role": "tool", "content": "5", "name": "add"}
TOOLS = [{"type": "function", "function": {"name": "add", "description": "It's «a»", "p": [1.5]}}]

CHATS: dict[str, list[list[dict[str, Any]]]] = {
    "ChatML": [[USER], [SYSTEM, USER, REPLY, USER]],
    "headers": [[USER], [SYSTEM, USER, REPLY, USER]],
    "tools": [[USER], [SYSTEM, USER, CALL, RESULT, REPLY]],
    "alternating": [[USER], [USER, REPLY, USER]],
}


@pytest.fixture
def reference(smollm_of_transformers: Any) -> Any:
    return smollm_of_transformers


def rendered(reference: Any, template: str, chat: list[dict[str, Any]], **options: Any) -> str:
    return reference.apply_chat_template(chat, chat_template=template, tokenize=False, **options)


@pytest.mark.parametrize("add_generation_prompt", [True, False])
@pytest.mark.parametrize("name", list(CHATS))
def test_templates_render_as_in_transformers(
    reference: Any, name: str, add_generation_prompt: bool
) -> None:
    source = chat_templates.ALL[name]
    template = ChatTemplate(source, bos_token=reference.bos_token, eos_token=reference.eos_token)
    for chat in CHATS[name]:
        for tools in (None, TOOLS):
            options = {"tools": tools, "add_generation_prompt": add_generation_prompt}
            assert template.render(chat, **options) == rendered(reference, source, chat, **options)


@pytest.mark.parametrize("name", list(CHATS))
def test_continued_messages_equal_transformers(reference: Any, name: str) -> None:
    source, chat = chat_templates.ALL[name], [USER, REPLY]
    template = ChatTemplate(source, bos_token=reference.bos_token, eos_token=reference.eos_token)
    options = {"add_generation_prompt": False, "continue_final_message": True}
    assert template.render(chat, **options) == rendered(reference, source, chat, **options)


def test_the_default_model_renders_and_ends_as_in_transformers(
    reference: Any, default_gguf: Path
) -> None:
    fields = gguf.GGUFReader(default_gguf).fields
    tokenizer = tokenizer_from_gguf(
        {name: fields[name].contents() for name in fields if name.startswith("tokenizer.")}
    )
    template = ChatTemplate(tokenizer.chat_template)
    for chat in ([USER], [SYSTEM, USER, REPLY, USER]):
        text = template.render(chat)
        assert text == rendered(
            reference, reference.chat_template, chat, add_generation_prompt=True
        )
    (stop,) = unite_stop_ids(tokenizer, [], template)
    assert (stop.token_id, stop.token) == (2, "<|im_end|>")
    assert stop.named_by == ("tokenizer eos_token", "chat template")
