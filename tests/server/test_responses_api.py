"""/v1/responses through the official client, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from tests.server.asking import last_request
from tests.server.bench import LiveServer, live_server

MESSAGES = [
    {"role": "user", "content": "first"},
    {"role": "assistant", "content": [{"type": "output_text", "text": "well"}]},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "grüß"}]},
]


@pytest.fixture
def client(server: LiveServer) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def test_text_in_text_out(client: openai.OpenAI, server: LiveServer) -> None:
    answer = client.responses.create(
        model="echo", input="hello", temperature=0.5, metadata={"a": "b"}
    )
    assert (answer.output_text, answer.status) == ("hello", "completed")
    assert answer.id.startswith("resp-")
    assert answer.metadata == {"a": "b"}
    assert answer.usage is not None
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (6, 6)
    assert last_request(server)["sampling"]["temperature"] == 0.5


def test_messages(client: openai.OpenAI) -> None:
    answer = client.responses.create(model="echo", input=MESSAGES)  # type: ignore[arg-type]
    assert answer.output_text == "grüß"


def test_instructions_go_first(tmp_path: Path) -> None:
    template = "{{ messages[0]['role'] }}:{{ messages[0]['content'] }}<|end|>"
    with live_server(tmp_path, template=template) as live:
        client = openai.OpenAI(base_url=f"{live.url}/v1", api_key="none")
        answer = client.responses.create(model="echo", input="x", instructions="be kind")
        assert answer.output_text == "system:be kind"


def test_cut_short(client: openai.OpenAI) -> None:
    answer = client.responses.create(model="echo", input="hello", max_output_tokens=2)
    assert (answer.output_text, answer.status) == ("he", "incomplete")
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"


def test_events_of_a_stream(client: openai.OpenAI) -> None:
    events = list(client.responses.create(model="echo", input="grüß", stream=True))
    kinds = [event.type for event in events]
    assert kinds[:4] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
    ]
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert deltas == list("grüß")
    last: Any = events[-1]
    assert last.response.output_text == "grüß"
    assert last.response.usage.output_tokens == 7


def test_the_stream_of_the_client_puts_it_together(client: openai.OpenAI) -> None:
    with client.responses.stream(model="echo", input="abc") as stream:
        assert stream.get_final_response().output_text == "abc"


def test_a_dying_engine_fails_the_response(tmp_path: Path) -> None:
    with live_server(tmp_path, "--die-after", "2") as live:
        client = openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0)
        events = list(client.responses.create(model="echo", input="abcdef", stream=True))
        last: Any = events[-1]
        assert last.type == "response.failed"
        assert last.response.error.code == "engine_unavailable"


def test_what_is_kept_by_nobody(server: LiveServer) -> None:
    answer = httpx.post(server.url + "/v1/responses", json={"input": "x", "store": True})
    assert answer.headers["x-headway-ignored-fields"] == "store"
    assert answer.json()["store"] is False


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"previous_response_id": "resp-1"}, "previous_response_id"),
        ({"tools": [{"type": "web_search"}]}, "tools"),
        ({"background": True}, "background"),
        ({"truncation": "auto"}, "truncation"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format.type"),
        ({"input": []}, "input"),
        ({"input": [{"type": "function_call_output"}]}, "input[0]"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"content": "x"}]}, "input[0].role"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
    ],
)
def test_what_is_refused(server: LiveServer, fields: dict[str, Any], param: str) -> None:
    answer = httpx.post(server.url + "/v1/responses", json={"input": "x", **fields})
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param
