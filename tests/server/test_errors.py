"""Whatever is wrong is said in OpenAI's shape, with the field at fault."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.server.bench import LiveServer, live_server

COMPLETIONS = "/v1/completions"
CHAT = "/v1/chat/completions"
HI = [{"role": "user", "content": "hi"}]

# endpoint, body, status, code, param
CASES: list[tuple[str, Any, int, str, str | None]] = [
    (COMPLETIONS, [], 400, "invalid_json", None),
    (COMPLETIONS, {}, 400, "missing_required_parameter", "prompt"),
    (COMPLETIONS, {"prompt": 7}, 400, "invalid_type", "prompt"),
    (COMPLETIONS, {"prompt": []}, 400, "invalid_type", "prompt"),
    (COMPLETIONS, {"prompt": ["a", 1]}, 400, "invalid_type", "prompt"),
    (COMPLETIONS, {"prompt": ""}, 400, "invalid_value", "prompt"),
    (COMPLETIONS, {"prompt": [999]}, 400, "invalid_value", "prompt"),
    (COMPLETIONS, {"prompt": "a", "max_tokens": "many"}, 400, "invalid_type", "max_tokens"),
    (COMPLETIONS, {"prompt": "a", "max_tokens": 0}, 400, "invalid_value", "max_tokens"),
    (COMPLETIONS, {"prompt": "a", "temperature": -1}, 400, "invalid_value", "temperature"),
    (COMPLETIONS, {"prompt": "a", "top_p": 0}, 400, "invalid_value", "top_p"),
    (COMPLETIONS, {"prompt": "a", "n": 0}, 400, "invalid_value", "n"),
    (COMPLETIONS, {"prompt": "a", "n": 10**9}, 400, "invalid_value", "n"),
    (COMPLETIONS, {"prompt": ["a"] * 600, "n": 2}, 400, "invalid_value", "prompt"),
    (COMPLETIONS, {"prompt": "a", "n": "3", "best_of": 1}, 400, "invalid_type", "n"),
    (COMPLETIONS, {"prompt": "a", "top_k": 10**30}, 400, "invalid_value", "top_k"),
    (COMPLETIONS, {"prompt": "a", "stop": "ab" * 10_000}, 400, "invalid_value", "stop"),
    (COMPLETIONS, {"prompt": "a", "logprobs": 21}, 400, "invalid_value", "logprobs"),
    (COMPLETIONS, {"prompt": "a", "logit_bias": {"x": 1}}, 400, "invalid_type", "logit_bias"),
    (COMPLETIONS, {"prompt": "a", "logit_bias": {"999": 1}}, 400, "invalid_value", "logit_bias"),
    (COMPLETIONS, {"prompt": "a", "stop": [""]}, 400, "invalid_value", "stop"),
    (COMPLETIONS, {"prompt": "a", "model": "gpt"}, 404, "model_not_found", "model"),
    (COMPLETIONS, {"prompt": "a", "suffix": "b"}, 400, "unsupported_parameter", "suffix"),
    (COMPLETIONS, {"prompt": "a", "best_of": 2}, 400, "unsupported_parameter", "best_of"),
    (COMPLETIONS, {"prompt": "a", "priority": 1}, 400, "unsupported_parameter", "priority"),
    (
        COMPLETIONS,
        {"prompt": "a", "max_tokens": 2048},
        400,
        "context_length_exceeded",
        "prompt",
    ),
    (COMPLETIONS, {"prompt": "a" * 1100}, 400, "request_never_fits", None),
    (COMPLETIONS, {"prompt": "a" * 1100, "stream": True}, 400, "request_never_fits", None),
    (COMPLETIONS, {"prompt": "a", "stream_options": {}}, 400, "invalid_value", "stream_options"),
    (CHAT, {"messages": []}, 400, "invalid_value", "messages"),
    (CHAT, {"messages": [{}]}, 400, "invalid_type", "messages[0].role"),
    (CHAT, {"messages": [{"role": "user"}]}, 400, "invalid_type", "messages[0].content"),
    (
        CHAT,
        {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
        400,
        "unsupported_parameter",
        "messages[0].content",
    ),
    (CHAT, {"messages": HI, "tools": [{}]}, 400, "unsupported_parameter", "tools"),
    (
        CHAT,
        {"messages": HI, "tool_choice": "required"},
        400,
        "unsupported_parameter",
        "tool_choice",
    ),
    (
        CHAT,
        {"messages": HI, "response_format": {"type": "json_object"}},
        400,
        "unsupported_parameter",
        "response_format",
    ),
    (CHAT, {"messages": HI, "guided_json": {"a": 1}}, 400, "unsupported_parameter", "guided_json"),
    (CHAT, {"messages": HI, "top_logprobs": 2}, 400, "invalid_value", "top_logprobs"),
    ("/v1/nothing", {}, 404, "not_found", None),
    ("/health", {}, 405, "method_not_allowed", None),
]


@pytest.mark.parametrize(("path", "body", "status", "code", "param"), CASES)
def test_error_has_the_shape(
    server: LiveServer, path: str, body: Any, status: int, code: str, param: str | None
) -> None:
    answer = httpx.post(server.url + path, json=body)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["code"], error["param"]) == (code, param)
    assert len(error["message"]) > 10


@pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe", b"null", b"NaN", b"[" * 100_000])
def test_garbage_bodies(server: LiveServer, raw: bytes) -> None:
    answer = httpx.post(server.url + COMPLETIONS, content=raw)
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_json"


def test_context_sentence_has_the_numbers(server: LiveServer) -> None:
    body = {"messages": [{"role": "user", "content": "a" * 99}], "max_tokens": 2000}
    message = httpx.post(server.url + CHAT, json=body).json()["error"]["message"]
    assert message.startswith(
        "This model's maximum context length is 2048 tokens. However, you requested 2100 tokens "
        "(100 in the messages, 2000 in the completion)."
    )


def test_body_that_is_too_long(server: LiveServer) -> None:
    answer = httpx.post(server.url + COMPLETIONS, content=b"a" * (33 << 20))
    assert answer.status_code == 413


def test_unknown_fields_are_named_in_a_header(server: LiveServer) -> None:
    body = {
        "prompt": "a",
        "max_tokens": 1,
        "service_tier": "auto",
        "x\r\ny": 1,
        "": 2,
        "user": "me",
    }
    answer = httpx.post(server.url + COMPLETIONS, json=body)
    assert answer.status_code == 200
    assert answer.headers["x-headway-ignored-fields"] == 'service_tier, x%0D%0Ay, ""'


def test_null_is_the_same_as_absent(server: LiveServer) -> None:
    body = {"prompt": "ab", "max_tokens": 2, "temperature": None, "stop": None, "tools": None}
    answer = httpx.post(server.url + COMPLETIONS, json=body)
    assert answer.json()["choices"][0]["text"] == "ab"
    assert "x-headway-ignored-fields" not in answer.headers


def test_neutral_values_of_unsupported_fields_pass(server: LiveServer) -> None:
    body = {"messages": HI, "tools": [], "tool_choice": "auto", "response_format": {"type": "text"}}
    assert httpx.post(server.url + CHAT, json=body).status_code == 200


def test_chat_without_a_template_says_so(tmp_path) -> None:
    with live_server(tmp_path, template=None) as live:
        answer = httpx.post(live.url + CHAT, json={"messages": HI})
        assert answer.status_code == 400
        assert "--chat-template" in answer.json()["error"]["message"]


def test_keys_guard_everything_but_health(tmp_path) -> None:
    with live_server(tmp_path, api_keys=("one", "two", "schlüssel")) as live:
        assert httpx.get(live.url + "/health").status_code == 200
        for path in ("/metrics", "/v1/models", "/version", "/docs"):
            assert httpx.get(live.url + path).status_code == 401
        for key, status in (("one", 200), ("two", 200), ("three", 401), ("one2", 401)):
            headers = {"authorization": f"Bearer {key}"}
            assert httpx.get(live.url + "/v1/models", headers=headers).status_code == status
        beyond_ascii = {"authorization": "Bearer schlüssel".encode()}
        assert httpx.get(live.url + "/v1/models", headers=beyond_ascii).status_code == 200
        odd = {"authorization": b"Bearer \xff\xfe"}
        assert httpx.get(live.url + "/v1/models", headers=odd).status_code == 401


def test_models(server: LiveServer) -> None:
    models = httpx.get(server.url + "/v1/models").json()
    assert [model["id"] for model in models["data"]] == ["echo", "echo-2"]
    assert models["data"][0]["max_model_len"] == 2048
    assert httpx.get(server.url + "/v1/models/echo-2").json()["id"] == "echo-2"
    assert httpx.get(server.url + "/v1/models/none").status_code == 404
