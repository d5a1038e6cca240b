"""A full server and the openai package's own retries."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import openai
import pytest
from benchmarks.load.server import Server, running

from tests.clients.waiting import is_soon


@pytest.fixture(scope="module")
def full_server() -> Iterator[Server]:
    flags = ["--kv-cache-memory-bytes", "256m", "--max-num-queued-reqs", "1"]
    with running([*flags, "--queue-full-status", "429"]) as live:
        yield live


def client_of(server: Server, max_retries: int) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=max_retries)


@contextmanager
def occupied(server: Server) -> Iterator[openai.Stream[openai.types.Completion]]:
    """One stream runs, and one is all that the server takes."""
    stream = client_of(server, 0).completions.create(
        model=server.model(),
        prompt="Count:",
        max_tokens=2000,
        stream=True,
        extra_body={"ignore_eos": True},
    )
    with stream:
        next(iter(stream))
        yield stream
    assert is_soon(lambda: server.metric("vllm:num_requests_running") == 0)


def test_a_full_server_is_a_rate_limit_error_that_says_when(full_server: Server) -> None:
    with occupied(full_server), pytest.raises(openai.RateLimitError) as caught:
        client_of(full_server, 0).completions.create(model=full_server.model(), prompt="x")
    assert caught.value.code == "queue_full"
    assert 1 <= int(caught.value.response.headers["retry-after"]) <= 60


def test_retries_get_through_once_there_is_room(full_server: Server) -> None:
    with occupied(full_server) as stream:
        leaving = threading.Timer(0.2, stream.close)
        leaving.start()
        began = time.monotonic()
        answer = client_of(full_server, 2).completions.create(
            model=full_server.model(), prompt="x", max_tokens=2
        )
        took_s = time.monotonic() - began
        leaving.join()
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 2
    assert took_s >= 1  # what Retry-After said, not the package's own half second
