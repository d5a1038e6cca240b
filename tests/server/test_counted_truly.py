"""What a dashboard is told agrees with what clients saw, on a real engine (P58, P59, P62, P72)."""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.cli.serve import start_engine_process
from headway.engine.config import EngineConfig
from tests.model.tiny import make_tiny_llama
from tests.server.bench import LiveServer, live_server
from tests.server.collector import collecting
from tests.server.test_disconnects import send

# Slow enough for a client to leave in the middle.
SLOW = {"hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 8}
BLOCK_SIZE, NUM_BLOCKS, NUM_SLOTS = 16, 100, 4
MS = 1_000_000


@contextmanager
def started(directory: Path, shape: dict[str, int], **settings: Any) -> Iterator[LiveServer]:
    sizes = {"vocab_size": 258, "max_position_embeddings": 2048}
    make_tiny_llama(directory, eos_token_id=256, **sizes, **shape)
    config = EngineConfig(
        model=str(directory),
        dtype="float32",
        max_num_seqs=NUM_SLOTS,
        max_num_batched_tokens=64,
        block_size=BLOCK_SIZE,
        num_gpu_blocks_override=NUM_BLOCKS,
        num_threads=1,
    )
    start = partial(start_engine_process, config)
    with live_server(directory, start_engine=start, **settings) as server:
        yield server


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with started(tmp_path_factory.mktemp("counted"), SLOW) as server:
        yield server


def asked(num_prompt: int, num_output: int, **fields: Any) -> dict[str, Any]:
    prompt = [(7 * i + num_prompt) % 250 for i in range(num_prompt)]
    return {"prompt": prompt, "max_tokens": num_output, "ignore_eos": True, **fields}


def post(live: LiveServer, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(live.url + "/v1/completions", json=body, timeout=60)


def idle_page(live: LiveServer) -> str:
    """/metrics once nothing runs and nothing waits."""
    found = ""

    def is_idle() -> bool:
        nonlocal found
        found = httpx.get(live.url + "/metrics").text
        names = ("vllm:num_requests_running", "vllm:num_requests_waiting")
        return all(live.metric(name, found) == 0 for name in names)

    live.wait_for(is_idle, 20)
    return found


def labelled(text: str, name: str, label: str) -> float:
    match = re.search(rf"^{re.escape(name)}\{{[^}}]*{label}[^}}]*\}} (\S+)$", text, re.MULTILINE)
    assert match, (name, label)
    return float(match[1])


def num_waiting(live: LiveServer) -> int:
    return 0 if live.client.stats is None else live.client.stats.num_waiting


def until_first_token(live: LiveServer) -> socket.socket:
    """A stream that has shown its client a token, and will go on."""
    connection = send(live, asked(20, 1500, stream=True, return_token_ids=True))
    seen = b""
    while not re.search(rb'"token_ids":\[\d', seen):
        seen += connection.recv(65536)
    return connection


def test_p58_first_tokens_are_of_those_that_ended_after_one(live: LiveServer) -> None:
    before = idle_page(live)
    for n in (1, 2):
        assert post(live, asked(30, 8, n=n)).status_code == 200
    assert post(live, asked(1601, 8)).status_code == 400  # more than the pool has
    streams = [until_first_token(live) for _ in range(NUM_SLOTS)]
    queued = [send(live, asked(10, 5)) for _ in range(3)]
    live.wait_for(lambda: num_waiting(live) == len(queued))
    for connection in queued:
        connection.close()
    live.wait_for(lambda: num_waiting(live) == 0)  # else a slot might come free for them
    for connection in streams:
        connection.close()
    after = idle_page(live)

    def grew(name: str) -> float:
        return live.metric(name, after) - live.metric(name, before)

    assert grew("vllm:time_to_first_token_seconds_count") == 3 + NUM_SLOTS
    assert grew("vllm:request_queue_time_seconds_count") == 3 + NUM_SLOTS
    assert grew("vllm:e2e_request_latency_seconds_count") == 3 + NUM_SLOTS + len(queued)
    success = "vllm:request_success_total"
    for reason, count in (("length", 3), ("abort", NUM_SLOTS + len(queued)), ("stop", 0)):
        label = f'finished_reason="{reason}"'
        assert labelled(after, success, label) - labelled(before, success, label) == count
    assert grew("vllm:admission_rejections_total") == 1


def test_p59_used_and_cached_blocks_are_told_apart_and_the_page_says_so(live: LiveServer) -> None:
    body = asked(15 * BLOCK_SIZE + 1, 1)
    assert post(live, body).json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    page = idle_page(live)
    assert live.metric("vllm:kv_cache_usage_perc", page) == 0
    assert live.metric("vllm:gpu_cache_usage_perc", page) == 0
    assert labelled(page, "headway:blocks", 'state="held"') == 0
    assert labelled(page, "headway:blocks", 'state="cached"') >= 15
    assert live.metric("headway:blocks", page) == NUM_BLOCKS
    about = re.search(r"^# HELP vllm:kv_cache_usage_perc (.*)$", page, re.MULTILINE)
    assert about
    assert "only for the prefix cache count as free" in about[1]
    again = post(live, body).json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert again == 15 * BLOCK_SIZE  # what counted as free was there all the same


def test_p72_tokens_in_the_cache_have_a_gauge_of_their_own(live: LiveServer) -> None:
    stream = until_first_token(live)
    page = httpx.get(live.url + "/metrics").text
    stream.close()
    resident = live.metric("headway:resident_tokens", page)
    assert 20 <= resident <= 20 + 1500
    held = labelled(page, "headway:blocks", 'state="held"')
    assert (held - 1) * BLOCK_SIZE <= resident <= held * BLOCK_SIZE
    after = idle_page(live)
    assert live.metric("headway:resident_tokens", after) == 0
    counted = live.metric("vllm:prompt_tokens_total", after)
    assert counted + live.metric("vllm:generation_tokens_total", after) > resident


def test_p62_spans_of_every_request_add_up_to_its_time(tmp_path: Path) -> None:
    with collecting() as spans, started(tmp_path, {}, otlp_traces_endpoint=spans.url) as live:
        began_ns = time.time_ns()
        with ThreadPoolExecutor(8) as clients:  # twice the slots, more than the pool holds
            answers = list(clients.map(lambda i: post(live, asked(150 + i, 350)), range(8)))
        page = idle_page(live)
        live.wait_for(lambda: not len(live.app.state.frontend.timelines))
        live.app.state.tracing.close()
        ended_ns = time.time_ns()
    assert {answer.status_code for answer in answers} == {200}
    roots = spans.named("llm_request")
    assert len(roots) == 8
    for root in roots:
        parts = spans.children(root)
        lengths = [part.end_time_unix_nano - part.start_time_unix_nano for part in parts]
        assert min(lengths) >= 0
        assert abs(sum(lengths) - (root.end_time_unix_nano - root.start_time_unix_nano)) < MS
        assert began_ns <= root.start_time_unix_nano
        assert root.end_time_unix_nano <= ended_ns
        names = [part.name for part in parts]
        assert (names[0], names[-1]) == ("queue", "delivery")
        assert {"prefill", "decode"} <= set(names)
    num_preemptions = live.metric("vllm:num_preemptions_total", page)
    assert len(spans.named("preempted")) == num_preemptions > 0
    assert len(spans.named("recompute")) >= num_preemptions
