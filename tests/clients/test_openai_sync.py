"""The openai package, sync, against the real server."""

from __future__ import annotations

import openai
import pytest
from benchmarks.load.server import Server

from tests.clients.waiting import is_soon, is_soon_idle

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture
def client(base_url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=base_url, api_key="none", max_retries=0)


def test_models_are_listed(client: openai.OpenAI, model: str) -> None:
    assert [entry.id for entry in client.models.list()] == [model]
    assert client.models.retrieve(model).id == model


def test_chat(client: openai.OpenAI, model: str) -> None:
    answer = client.chat.completions.create(model=model, messages=QUESTION, temperature=0)
    assert answer.choices[0].message.content == "The capital of France is Paris."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_chat_stream_is_the_plain_answer(client: openai.OpenAI, model: str) -> None:
    stream = client.chat.completions.create(
        model=model,
        messages=QUESTION,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    said = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert said == "The capital of France is Paris."
    assert chunks[0].choices[0].delta.role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == 8


def test_stream_as_a_context_with_accumulated_result(client: openai.OpenAI, model: str) -> None:
    with client.chat.completions.stream(model=model, messages=QUESTION, temperature=0) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    assert final.choices[0].message.content == "The capital of France is Paris."


def test_n_choices_with_a_seed_come_again(client: openai.OpenAI, model: str) -> None:
    def texts(seed: int) -> list[str]:
        answer = client.completions.create(
            model=model, prompt="Once upon a time", n=3, seed=seed, max_tokens=12
        )
        assert [choice.index for choice in answer.choices] == [0, 1, 2]
        return [choice.text for choice in answer.choices]

    first = texts(7)
    assert len(set(first)) == 3
    assert texts(7) == first
    assert texts(8) != first


def test_prompts_of_one_body_are_answered_as_alone(client: openai.OpenAI, model: str) -> None:
    prompts = ["The sky is", "One, two, three,", "In 1969"]

    def texts(prompt: str | list[str]) -> list[str]:
        answer = client.completions.create(model=model, prompt=prompt, temperature=0, max_tokens=10)
        return [choice.text for choice in answer.choices]

    assert texts(prompts) == [texts(prompt)[0] for prompt in prompts]


def test_chat_logprobs_spell_the_answer(client: openai.OpenAI, model: str) -> None:
    answer = client.chat.completions.create(
        model=model, messages=QUESTION, temperature=0, max_tokens=5, logprobs=True, top_logprobs=3
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    assert "".join(t.token for t in logprobs.content) == answer.choices[0].message.content
    for token in logprobs.content:
        assert len(token.top_logprobs) == 3
        assert token.top_logprobs[0].logprob == token.logprob <= 0
        assert bytes(token.bytes or ()).decode() == token.token


def test_completion_logprobs_with_echo(client: openai.OpenAI, model: str) -> None:
    answer = client.completions.create(
        model=model, prompt="The sky is", temperature=0, max_tokens=2, echo=True, logprobs=2
    )
    choice = answer.choices[0]
    assert choice.text.startswith("The sky is")
    assert choice.logprobs is not None
    assert choice.logprobs.tokens is not None
    assert choice.logprobs.token_logprobs is not None
    assert "".join(choice.logprobs.tokens) == choice.text
    assert choice.logprobs.token_logprobs[0] is None
    assert all(logprob <= 0 for logprob in choice.logprobs.token_logprobs[1:])


@pytest.mark.parametrize("is_streamed", [False, True])
def test_stop_string_is_not_shown(client: openai.OpenAI, model: str, is_streamed: bool) -> None:
    answer = client.chat.completions.create(
        model=model, messages=QUESTION, temperature=0, stop=["France"], stream=is_streamed
    )
    if is_streamed:
        said = "".join(c.choices[0].delta.content or "" for c in answer)
    else:
        said = answer.choices[0].message.content
    assert said == "The capital of "


@pytest.mark.parametrize(
    ("fields", "kind"),
    [
        ({"temperature": -1}, openai.BadRequestError),
        ({"model": "gpt-4o"}, openai.NotFoundError),
        ({"max_tokens": 1_000_000}, openai.BadRequestError),
    ],
)
def test_errors_have_the_types_of_the_package(
    client: openai.OpenAI, model: str, fields: dict[str, object], kind: type[openai.APIStatusError]
) -> None:
    with pytest.raises(kind) as caught:
        client.completions.create(**{"model": model, "prompt": "x", **fields})  # type: ignore[call-overload]
    assert isinstance(caught.value.body, dict)
    assert {"message", "type", "param", "code"} <= set(caught.value.body)


def test_a_stream_that_is_closed_frees_its_blocks(
    client: openai.OpenAI, model: str, server: Server
) -> None:
    with client.completions.create(
        model=model, prompt="Count:", max_tokens=4000, stream=True, extra_body={"ignore_eos": True}
    ) as stream:
        for count, _ in enumerate(stream):
            if count == 3:
                break
    assert is_soon_idle(server)


def test_a_client_that_gives_up_frees_its_blocks(
    client: openai.OpenAI, model: str, server: Server
) -> None:
    ended = server.metric("vllm:request_success_total", finished_reason="abort")
    with pytest.raises(openai.APITimeoutError):
        client.completions.create(
            model=model,
            prompt="Count:",
            max_tokens=4000,
            timeout=0.5,
            extra_body={"ignore_eos": True},
        )
    assert is_soon_idle(server)
    assert is_soon(
        lambda: server.metric("vllm:request_success_total", finished_reason="abort") == ended + 1
    )
