"""Requests that are huge in one way or another: refused early, or worked on beside everybody."""

from __future__ import annotations

import threading
import time
from typing import Any

import httpx
import pytest

from tests.server.asking import BOTH, refused
from tests.server.bench import LiveServer


def worst_health_s(server: LiveServer, path: str, body: dict[str, Any]) -> tuple[float, float, Any]:
    """The longest /health while `body` was worked on, how long that took, and its answer."""
    is_over = threading.Event()
    took: list[float] = []

    def watch() -> None:
        with httpx.Client(base_url=server.url) as client:
            while not is_over.is_set():
                began = time.monotonic()
                assert client.get("/health").status_code == 200
                took.append(time.monotonic() - began)

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.monotonic()
    answer = httpx.post(server.url + path, json=body, timeout=60)
    whole = time.monotonic() - began
    is_over.set()
    watcher.join()
    return max(took), whole, answer


def test_many_long_prompts_are_tokenized_beside_everybody(server: LiveServer) -> None:
    body = {"prompt": ["word " * 1500] * 100, "max_tokens": 1, "truncate_prompt_tokens": 3}
    worst, whole, answer = worst_health_s(server, "/v1/completions", body)
    assert answer.status_code == 200
    assert [choice["text"] for choice in answer.json()["choices"]] == ["r"] * 100
    assert worst < max(0.3, whole / 3)


def test_many_tokens_are_decoded_beside_everybody(server: LiveServer) -> None:
    worst, whole, answer = worst_health_s(server, "/detokenize", {"tokens": [65] * 1_000_000})
    assert answer.json() == {"prompt": "A" * 1_000_000}
    assert worst < max(0.3, whole / 3)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {"prompt": "x" * 50_000}),
        ("/v1/completions", {"prompt": ["x", "x" * 50_000]}),
        ("/v1/completions", {"prompt": "x" * 50_000, "truncate_prompt_tokens": 2}),
        ("/v1/chat/completions", {"messages": [{"role": "user", "content": "x" * 50_000}]}),
        ("/v1/responses", {"input": "x" * 50_000}),
        ("/tokenize", {"prompt": "x" * 50_000}),
    ],
)
def test_a_text_that_no_context_holds_is_not_tokenized(
    server: LiveServer, path: str, body: dict[str, Any]
) -> None:
    answer = httpx.post(server.url + path, json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (400, "context_length_exceeded")
    assert "a text of 50" in error["message"]


@BOTH
@pytest.mark.parametrize("field", ["stop_token_ids", "allowed_token_ids"])
def test_a_list_longer_than_the_vocabulary(server: LiveServer, endpoint: str, field: str) -> None:
    status, error, _ = refused(server, endpoint, "x", **{field: [5] * 259})
    assert (status, error["param"]) == (400, field)
    assert "name each once" in error["message"]


@pytest.mark.parametrize(
    "fields", [{"stop": [""] * 100_000}, {"model": "m" * 100_000}, {"max_tokens": 10**4000}]
)
def test_what_was_wrong_is_not_sent_back_whole(server: LiveServer, fields: dict[str, Any]) -> None:
    status, error, _ = refused(server, "completions", "x", **fields)
    assert status in (400, 404)
    assert len(error["message"]) < 2100
