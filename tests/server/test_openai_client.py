"""The official client against a live server, streaming and not."""

from __future__ import annotations

import asyncio

import openai
import pytest

from tests.server.bench import LiveServer


@pytest.fixture
def client(server: LiveServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_completion(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="echo", prompt="abc", max_tokens=7)
    assert answer.id.startswith("cmpl-")
    assert answer.model == "echo"
    assert answer.choices[0].text == "abcabca"
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 7)
    assert answer.usage.total_tokens == 10


def test_completion_default_is_sixteen_tokens(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="echo", prompt="x")
    assert answer.choices[0].text == "x" * 16


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model="echo-2", messages=[{"role": "user", "content": "hello"}]
    )
    assert answer.id.startswith("chatcmpl-")
    assert answer.model == "echo-2"
    assert answer.choices[0].message.content == "hello"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


def test_chat_stream_is_the_plain_answer_in_pieces(client: openai.OpenAI) -> None:
    text = "grüß 你好 🙂!"
    stream = client.chat.completions.create(
        model="echo",
        messages=[{"role": "user", "content": text}],
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    assert chunks[0].choices[0].delta.role == "assistant"
    pieces = [c.choices[0].delta.content or "" for c in chunks if c.choices]
    assert "".join(pieces) == text
    assert not any("\ufffd" in piece for piece in pieces)
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == len(text.encode()) + 1
    assert all(chunk.usage is None for chunk in chunks[:-1])


def test_continuous_usage_counts_up(client: openai.OpenAI) -> None:
    stream = client.completions.create(
        model="echo",
        prompt="ab",
        max_tokens=4,
        stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True},  # type: ignore
    )
    counts = [chunk.usage.completion_tokens for chunk in stream if chunk.usage]
    assert counts == [1, 2, 3, 4, 4]


@pytest.mark.parametrize("stream", [False, True])
def test_several_prompts_with_several_choices(client: openai.OpenAI, stream: bool) -> None:
    answer = client.completions.create(
        model="echo", prompt=["ab", "xyz"], n=2, max_tokens=3, stream=stream
    )
    texts = dict.fromkeys(range(4), "")
    for chunk in answer if stream else [answer]:
        for choice in chunk.choices:
            texts[choice.index] += choice.text
    assert texts == {0: "aba", 1: "aba", 2: "xyz", 3: "xyz"}


@pytest.mark.parametrize("prompt", [[104, 105], [[104, 105]]])
def test_prompt_of_token_ids(client: openai.OpenAI, prompt: list) -> None:
    answer = client.completions.create(model="echo", prompt=prompt, max_tokens=2)
    assert answer.choices[0].text == "hi"


def test_echo_comes_first(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="echo", prompt="ab", max_tokens=2, echo=True)
    assert answer.choices[0].text == "abab"


def test_completion_logprobs(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="echo", prompt="ab", max_tokens=2, logprobs=2, echo=True
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens == ["a", "b", "a", "b"]
    assert logprobs.token_logprobs == [None, -0.5, -0.5, -0.5]
    assert logprobs.text_offset == [0, 1, 2, 3]
    assert logprobs.top_logprobs is not None
    assert logprobs.top_logprobs[0] is None
    assert logprobs.top_logprobs[2] == {"a": -0.5, "b": -1.5}


def test_scoring_a_prompt_shows_no_output(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model="echo", prompt="abc", max_tokens=0, logprobs=1, echo=True
    )
    assert answer.choices[0].text == "abc"
    assert answer.choices[0].logprobs is not None
    assert answer.choices[0].logprobs.token_logprobs == [None, -0.5, -0.5]
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 0


@pytest.mark.parametrize("stream", [False, True])
def test_chat_logprobs(client: openai.OpenAI, stream: bool) -> None:
    answer = client.chat.completions.create(
        model="echo",
        messages=[{"role": "user", "content": "é"}],
        logprobs=True,
        top_logprobs=2,
        stream=stream,
    )
    chunks = list(answer) if stream else [answer]
    content = [
        entry
        for chunk in chunks
        for choice in chunk.choices
        if choice.logprobs
        for entry in choice.logprobs.content or []
    ]
    assert [entry.bytes for entry in content[:2]] == [[0xC3], [0xA9]]
    assert [entry.logprob for entry in content] == [-0.5] * 3
    assert [len(entry.top_logprobs) for entry in content] == [2, 2, 2]


def test_cached_tokens_are_told(tmp_path) -> None:
    from tests.server.bench import live_server

    with live_server(tmp_path, "--cached", "2") as live:
        client = openai.OpenAI(base_url=f"{live.url}/v1", api_key="none")
        answer = client.completions.create(model="echo", prompt="abc", n=2)
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        assert answer.usage.prompt_tokens_details.cached_tokens == 2


def test_sixty_four_streams_at_once(server: LiveServer) -> None:
    async def one(client: openai.AsyncOpenAI, number: int) -> str:
        text = f"stream {number} says 你好"
        stream = await client.chat.completions.create(
            model="echo", messages=[{"role": "user", "content": text}], stream=True
        )
        said = [c.choices[0].delta.content or "" async for c in stream if c.choices]
        return "ok" if "".join(said) == text else "".join(said)

    async def many() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none") as client:
            return await asyncio.gather(*(one(client, i) for i in range(64)))

    assert asyncio.run(many()) == ["ok"] * 64
