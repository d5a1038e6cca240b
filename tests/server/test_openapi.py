"""The schema says what the server does: bodies, answers, errors, for every path."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest

from headway.server.schema.bodies import CompletionBody
from tests.server.bench import LiveServer

PATHS = {
    "/v1/completions": {"post"},
    "/v1/chat/completions": {"post"},
    "/v1/responses": {"post"},
    "/v1/models": {"get"},
    "/v1/models/{name}": {"get"},
    "/v1/requests": {"get"},
    "/v1/requests/{request_id}/explain": {"get"},
    "/tokenize": {"post"},
    "/detokenize": {"post"},
    "/tokenizer_info": {"get"},
    "/reset_prefix_cache": {"post"},
    "/health": {"get"},
    "/ping": {"get", "post"},
    "/version": {"get"},
    "/load": {"get"},
    "/metrics": {"get"},
}


@pytest.fixture(scope="module")
def schema(server: LiveServer) -> dict[str, Any]:
    return httpx.get(server.url + "/openapi.json").json()


def test_every_path_is_there(schema: dict[str, Any]) -> None:
    assert {path: set(operations) for path, operations in schema["paths"].items()} == PATHS


def test_every_reference_leads_somewhere(schema: dict[str, Any]) -> None:
    names = set(re.findall(r"#/components/schemas/(\w+)", httpx_text(schema)))
    assert names <= set(schema["components"]["schemas"])


def httpx_text(schema: dict[str, Any]) -> str:
    return httpx.Response(200, json=schema).text


def test_bodies_have_their_fields_with_limits(schema: dict[str, Any]) -> None:
    shown = schema["components"]["schemas"]["CompletionBody"]
    assert set(CompletionBody.__struct_fields__) <= set(shown["properties"])
    assert shown["required"] == ["prompt"]
    assert shown["properties"]["top_p"]["maximum"] == 1
    assert "without effect" in shown["properties"]["service_tier"]["description"]


def test_every_path_names_its_errors(schema: dict[str, Any]) -> None:
    for path, operations in schema["paths"].items():
        for operation in operations.values():
            assert {"200", "401", "500", "503"} <= set(operation["responses"]), path
            assert "422" not in operation["responses"]
    generating = schema["paths"]["/v1/completions"]["post"]["responses"]
    assert {"400", "404", "409", "413", "429", "504"} <= set(generating)


def test_streams_are_named(schema: dict[str, Any]) -> None:
    answer = schema["paths"]["/v1/completions"]["post"]["responses"]["200"]["content"]
    assert set(answer) == {"application/json", "text/event-stream"}
