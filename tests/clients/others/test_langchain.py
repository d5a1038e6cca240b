"""langchain-openai: chat and plain models."""

from __future__ import annotations

import asyncio

import pytest
from langchain_openai import ChatOpenAI, OpenAI

QUESTION = "What is the capital of France?"
PARIS = "The capital of France is Paris."


@pytest.fixture
def chat(base_url: str, model: str) -> ChatOpenAI:
    return ChatOpenAI(base_url=base_url, api_key="none", model=model, temperature=0)


def test_invoke(chat: ChatOpenAI) -> None:
    answer = chat.invoke(QUESTION)
    assert answer.content == PARIS
    assert answer.usage_metadata["output_tokens"] == 8
    assert answer.response_metadata["finish_reason"] == "stop"


def test_roles(chat: ChatOpenAI) -> None:
    answer = chat.invoke([("system", "Answer in one sentence."), ("human", QUESTION)])
    assert "Paris" in answer.content


def test_stream(chat: ChatOpenAI) -> None:
    pieces = list(chat.stream(QUESTION))
    assert "".join(piece.content for piece in pieces) == PARIS
    assert len([piece for piece in pieces if piece.content]) > 3


def test_batch(chat: ChatOpenAI) -> None:
    answers = chat.batch([QUESTION] * 4)
    assert [answer.content for answer in answers] == [PARIS] * 4


def test_async(chat: ChatOpenAI) -> None:
    async def ask() -> list[str]:
        answers = await chat.abatch([QUESTION] * 2)
        said = "".join([piece.content async for piece in chat.astream(QUESTION)])
        return [said, *(answer.content for answer in answers)]

    assert asyncio.run(ask()) == [PARIS] * 3


def test_chain_with_a_prompt_template(chat: ChatOpenAI) -> None:
    from langchain_core.output_parsers import StrOutputParser
    from langchain_core.prompts import ChatPromptTemplate

    chain = ChatPromptTemplate.from_template("What is the capital of {country}?") | chat
    assert (chain | StrOutputParser()).invoke({"country": "France"}) == PARIS


def test_plain_model(base_url: str, model: str) -> None:
    plain = OpenAI(base_url=base_url, api_key="none", model=model, temperature=0, max_tokens=2)
    assert plain.invoke("The capital of France is") == " Paris."
    assert "".join(plain.stream("The capital of France is")) == " Paris."


def test_logprobs(base_url: str, model: str) -> None:
    chat = ChatOpenAI(
        base_url=base_url, api_key="none", model=model, temperature=0, logprobs=True, top_logprobs=2
    )
    answer = chat.invoke(QUESTION)
    tokens = answer.response_metadata["logprobs"]["content"]
    assert "".join(token["token"] for token in tokens).startswith(PARIS)
