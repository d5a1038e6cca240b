"""`client.responses` of the openai package."""

from __future__ import annotations

import openai
import pytest

PARIS = "The capital of France is Paris."


@pytest.fixture
def client(base_url: str) -> openai.OpenAI:
    return openai.OpenAI(base_url=base_url, api_key="none", max_retries=0)


def test_plain(client: openai.OpenAI, model: str) -> None:
    answer = client.responses.create(
        model=model, input="What is the capital of France?", temperature=0
    )
    assert answer.output_text == PARIS
    assert answer.status == "completed"
    assert answer.usage is not None
    assert answer.usage.output_tokens == 8


def test_messages_and_instructions(client: openai.OpenAI, model: str) -> None:
    answer = client.responses.create(
        model=model,
        instructions="Answer in one sentence.",
        input=[{"role": "user", "content": "What is the capital of France?"}],
        temperature=0,
    )
    assert "Paris" in answer.output_text


def test_stream(client: openai.OpenAI, model: str) -> None:
    events = list(
        client.responses.create(
            model=model, input="What is the capital of France?", temperature=0, stream=True
        )
    )
    said = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert said == PARIS
    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"
    assert events[-1].response.output_text == PARIS
    assert [e.sequence_number for e in events] == list(range(len(events)))


def test_stream_helper(client: openai.OpenAI, model: str) -> None:
    with client.responses.stream(
        model=model, input="What is the capital of France?", temperature=0
    ) as stream:
        for _ in stream:
            pass
        assert stream.get_final_response().output_text == PARIS


def test_cut_off_by_max_output_tokens(client: openai.OpenAI, model: str) -> None:
    answer = client.responses.create(
        model=model, input="Tell a story.", max_output_tokens=3, temperature=0
    )
    assert answer.status == "incomplete"
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
