"""litellm, under its vLLM provider and its OpenAI one."""

from __future__ import annotations

import asyncio

import litellm
import pytest

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
PARIS = "The capital of France is Paris."


@pytest.fixture(params=["hosted_vllm", "openai"])
def target(request: pytest.FixtureRequest, base_url: str, model: str) -> dict[str, str]:
    return {"model": f"{request.param}/{model}", "api_base": base_url, "api_key": "none"}


def test_completion(target: dict[str, str]) -> None:
    answer = litellm.completion(messages=QUESTION, temperature=0, **target)
    assert answer.choices[0].message.content == PARIS
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage.completion_tokens == 8


def test_stream_with_usage(target: dict[str, str]) -> None:
    stream = litellm.completion(
        messages=QUESTION,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
        **target,
    )
    chunks = list(stream)
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == PARIS
    assert chunks[-1].usage.completion_tokens == 8


def test_async_stream(target: dict[str, str]) -> None:
    async def said() -> str:
        stream = await litellm.acompletion(messages=QUESTION, temperature=0, stream=True, **target)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream])

    assert asyncio.run(said()) == PARIS


def test_text_completion(target: dict[str, str]) -> None:
    answer = litellm.text_completion(
        prompt="The capital of France is", temperature=0, max_tokens=2, **target
    )
    assert answer.choices[0].text == " Paris."


def test_sampling_extras_of_vllm(target: dict[str, str]) -> None:
    answer = litellm.completion(
        messages=QUESTION, temperature=1.0, extra_body={"top_k": 1}, **target
    )
    assert answer.choices[0].message.content == PARIS


def test_errors_have_the_classes_of_the_package(target: dict[str, str]) -> None:
    with pytest.raises(litellm.BadRequestError):
        litellm.completion(messages=QUESTION, temperature=-1, **target)
    with pytest.raises(litellm.ContextWindowExceededError):
        litellm.completion(messages=QUESTION, max_tokens=1_000_000, **target)
