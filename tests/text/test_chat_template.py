"""Chat templates: what is rendered, what is converted, what is refused."""

from __future__ import annotations

from datetime import datetime

import chat_templates
import pytest
import vocabularies

from headway.text.chat_template import ChatTemplate, ChatTemplateError, end_token_ids

USER = {"role": "user", "content": "Hi"}
REPLY = {"role": "assistant", "content": "Hello "}


def render(source: str, *messages: dict[str, object], **options: object) -> str:
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>").render(messages, **options)


def test_a_conversation_and_the_generation_prompt() -> None:
    assert render(chat_templates.CHATML, USER) == (
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )
    assert render(chat_templates.CHATML, USER, add_generation_prompt=False) == (
        "<|im_start|>user\nHi<|im_end|>\n"
    )


def test_the_day_comes_from_the_clock_that_was_given() -> None:
    template = ChatTemplate(chat_templates.HEADERS, now=lambda: datetime(2024, 7, 26))
    assert "Today: 26 Jul 2024" in template.render([USER])


def test_the_generation_tag_is_only_a_block() -> None:
    text = render(chat_templates.ALTERNATING, USER, REPLY, add_generation_prompt=False)
    assert text == "<s>[INST] Hi [/INST] Hello </s>"


def test_the_final_message_can_be_continued() -> None:
    options = {"add_generation_prompt": False, "continue_final_message": True}
    text = render(chat_templates.CHATML, USER, REPLY, **options)
    assert text.endswith("<|im_start|>assistant\nHello ")
    trimmed = render(chat_templates.HEADERS, USER, REPLY, **options)
    assert trimmed.endswith("Hello")
    assert render(chat_templates.PARTS, USER, REPLY, **options).endswith("assistant\nHello ")


def test_content_is_converted_to_what_the_template_wants() -> None:
    parts = [{"type": "text", "text": "Hi"}, {"type": "text", "text": "there"}]
    assert "Hi\nthere" in render(chat_templates.CHATML, {"role": "user", "content": parts})
    assert "user\nHi<" in render(chat_templates.PARTS, USER)
    formats = {name: ChatTemplate(src).content_format for name, src in chat_templates.ALL.items()}
    assert formats == {name: "parts" if name == "parts" else "string" for name in formats}


def test_tool_arguments_as_json_text_are_printed_as_an_object() -> None:
    function = {"name": "add", "arguments": '{"a": "é<"}'}
    call = {"role": "assistant", "content": None, "tool_calls": [{"function": function}]}
    text = render(chat_templates.TOOLS, USER, call, tools=[{"name": "add"}])
    assert '<call 1>add {\n  "a": "é<"\n}</call>' in text
    assert '# Tools\n{"name": "add"}<' in text
    assert function["arguments"] == '{"a": "é<"}', "the client's message was written to"


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        (["Hi"], "an object with a role"),
        ([{"content": "Hi"}], "an object with a role"),
        ([{"role": "user", "content": 3}], "must be a string or a list"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "takes text only"),
        ([REPLY], "roles must alternate"),
        (
            [{"role": "user", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}],
            "'f' are not valid JSON",
        ),
    ],
)
def test_bad_messages_are_named(messages: list[object], message: str) -> None:
    with pytest.raises(ChatTemplateError, match=message):
        ChatTemplate(chat_templates.ALTERNATING).render(messages)  # type: ignore[arg-type]


def test_deeply_nested_values_are_an_error_of_the_request() -> None:
    nested: list[object] = []
    for _ in range(5000):
        nested = [nested]
    with pytest.raises(ChatTemplateError, match="nested too deep"):
        render("{{ tools | tojson }}", USER, tools=[{"name": nested}])


def test_a_model_without_a_template_says_what_to_do() -> None:
    with pytest.raises(ChatTemplateError, match="--chat-template"):
        ChatTemplate(None)


def test_a_broken_template_is_refused_when_it_is_loaded() -> None:
    with pytest.raises(ChatTemplateError, match="does not compile"):
        ChatTemplate("{% for x in %}")


def test_continuing_and_beginning_a_message_exclude_each_other() -> None:
    with pytest.raises(ChatTemplateError, match="only one"):
        render(chat_templates.CHATML, USER, continue_final_message=True)


def test_the_end_of_a_turn_is_read_off_the_template() -> None:
    tokenizer = vocabularies.byte_level()
    end = tokenizer.token_to_id("<|im_end|>")
    for source in (chat_templates.CHATML, chat_templates.TOOLS, chat_templates.PARTS):
        assert end_token_ids(ChatTemplate(source), tokenizer) == [end]
    assert end_token_ids(ChatTemplate(chat_templates.HEADERS), tokenizer) == []
    with_eos = ChatTemplate(chat_templates.ALTERNATING, eos_token="<|endoftext|>")
    assert end_token_ids(with_eos, tokenizer) == [tokenizer.token_to_id("<|endoftext|>")]


def test_a_variable_may_have_any_name() -> None:
    template = ChatTemplate("{{ self }}{{ source }}{{ messages[0].content }}{{ text }}")
    said = template.render([{"role": "user", "content": "hi"}], self=1, text="!")
    assert said.endswith("hi!")
