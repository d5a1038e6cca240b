"""Explanations over HTTP: in answers, at an endpoint, for those who may see them."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from headway.cli.serve import start_engine_process
from headway.engine.config import EngineConfig
from headway.insight.explain.report import PARTS
from tests.model.tiny import make_tiny_llama
from tests.server.asking import ask, refused
from tests.server.bench import LiveServer, live_server

ENDPOINTS = ["completions", "chat"]


def check(explanation: dict[str, Any]) -> None:
    for sequence in explanation["sequences"]:
        assert tuple(sequence["parts_ns"]) == PARTS
        assert sum(sequence["parts_ns"].values()) == sequence["e2e_ns"]
        assert sum(w["ns"] for w in sequence["waits"]) == sequence["parts_ns"]["queue"]
    assert sum(explanation["parts_ns"].values()) == explanation["e2e_ns"]


def get(server: LiveServer, path: str, key: str | None = None) -> httpx.Response:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return httpx.get(f"{server.url}/v1/requests{path}", headers=headers)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_an_answer_has_its_explanation(server: LiveServer, endpoint: str, stream: bool) -> None:
    answer = ask(server, endpoint, "abc", stream=stream, max_tokens=3, explain=True)
    explanation = answer.chunks[-1]["explain"]
    check(explanation)
    assert explanation["output_tokens"] == 3
    assert explanation["status"] == "length"
    assert explanation["request_id"].startswith(answer.chunks[-1]["id"])
    assert all("explain" not in chunk for chunk in answer.chunks[:-1])
    assert "explain" not in answer.headers.get("x-headway-ignored-fields", "")


def test_the_header_asks_as_the_field_does(server: LiveServer) -> None:
    answer = ask(server, "chat", "abc", max_tokens=3, headers={"x-explain": "1"})
    check(answer.chunks[0]["explain"])
    silent = ask(server, "chat", "abc", max_tokens=3, headers={"x-explain": "0"})
    assert "explain" not in silent.chunks[0]
    status, error, _ = refused(server, "chat", "abc", headers={"x-explain": "perhaps"})
    assert (status, error["param"]) == (400, "x-explain")


def respond(server: LiveServer, *, headers: dict[str, str] | None = None, **fields: Any) -> Any:
    """Of /v1/responses, streamed or not, the whole response, and the events before it."""
    got = httpx.post(f"{server.url}/v1/responses", json={"input": "abc", **fields}, headers=headers)
    assert got.status_code == 200, got.text
    if not fields.get("stream"):
        return got.json(), []
    datas = [line.partition("data: ")[2] for line in got.text.split("\n\n") if line]
    *events, last = map(json.loads, datas)
    return last["response"], events


@pytest.mark.parametrize("stream", [False, True])
def test_a_response_has_its_explanation_once(server: LiveServer, stream: bool) -> None:
    whole, events = respond(server, stream=stream, max_output_tokens=3, explain=True)
    check(whole["explain"])
    assert (whole["explain"]["request_id"], whole["explain"]["status"]) == (whole["id"], "length")
    assert all("explain" not in event.get("response", {}) for event in events)
    asked, _ = respond(server, stream=stream, headers={"x-explain": "1"})
    check(asked["explain"])
    silent, _ = respond(server, stream=stream)
    assert "explain" not in silent


def test_a_stop_string_is_explained_before_the_engine_knows_of_it(server: LiveServer) -> None:
    answer = ask(server, "completions", "abcdef", max_tokens=60, stop="de", explain=True)
    check(answer.chunks[0]["explain"])


def test_of_several_prompts_the_last_to_end_is_explained(server: LiveServer) -> None:
    answer = ask(server, "completions", ["ab", "abcd", "abc"], n=2, max_tokens=4, explain=True)
    explanation = answer.chunks[0]["explain"]
    check(explanation)
    assert [s["index"] for s in explanation["sequences"]] == [0, 1]
    assert len(explanation["others"]) == 2


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_request_is_found_by_each_of_its_names(server: LiveServer, endpoint: str) -> None:
    own = f"mine/{endpoint}?x"
    answer = ask(server, endpoint, "abc", max_tokens=3, headers={"x-request-id": own})
    for name in (own, answer.chunks[0]["id"]):
        found = get(server, f"/{quote(name, safe='')}/explain")
        assert found.status_code == 200, found.text
        check(found.json())
    server.wait_for(lambda: not len(server.app.state.frontend.explanations.fold))
    found = get(server, f"/{quote(own, safe='')}/explain").json()
    assert found["status"] == "length"
    assert found["parts_ns"]["delivery"] > 0


def test_who_is_not_known_gets_a_sentence(server: LiveServer) -> None:
    got = get(server, "/nobody/explain")
    assert got.status_code == 404
    assert "no request 'nobody' is under way or among the latest 10,000" in got.text


def test_the_slowest_come_first(server: LiveServer) -> None:
    for length in (1, 9, 30):
        ask(server, "completions", "abc", max_tokens=length)
    rows = get(server, "?slowest=2").json()["data"]
    assert len(rows) == 2
    assert rows[0]["e2e_ns"] >= rows[1]["e2e_ns"]
    assert rows[0]["verdict"]
    for wrong in ("0", "101", "-1", "x", "9" * 30, "²", ""):
        got = get(server, f"?slowest={wrong}")
        assert (got.status_code, got.json()["error"]["param"]) == (400, "slowest"), wrong


def test_what_is_over_is_forgotten_in_order(tmp_path: Path) -> None:
    with live_server(tmp_path, explain_buffer=2) as server:
        ids = [ask(server, "chat", "abc", max_tokens=2).chunks[0]["id"] for _ in range(3)]
        server.wait_for(lambda: not len(server.app.state.frontend.explanations.fold))
        statuses = [get(server, f"/{name}/explain").status_code for name in ids]
    assert statuses == [404, 200, 200]


def test_a_server_that_explains_nothing_says_so(tmp_path: Path) -> None:
    with live_server(tmp_path, explain_buffer=0) as server:
        status, error, _ = refused(server, "chat", "abc", explain=True)
        assert (status, error["param"]) == (400, "explain")
        assert "--explain-buffer" in error["message"]
        assert get(server, "/x/explain").status_code == 404
        assert "--explain-buffer" in get(server, "").text


def test_a_key_sees_its_own_requests_and_no_names_of_others(tmp_path: Path) -> None:
    with live_server(tmp_path, api_keys=("one", "two")) as server:
        assert get(server, "").status_code == 401
        assert get(server, "/x/explain").status_code == 401
        headers = {"authorization": "Bearer one"}
        answer = ask(server, "chat", "abc", max_tokens=2, headers=headers)
        name = answer.chunks[0]["id"]
        assert get(server, f"/{name}/explain", "one").status_code == 200
        assert get(server, f"/{name}/explain", "two").status_code == 404
        assert [r["request_id"] for r in get(server, "", "one").json()["data"]] == [name]
        assert get(server, "", "two").json()["data"] == []


@contextmanager
def unread(server: LiveServer, name: str) -> Iterator[socket.socket]:
    """A connection with an answer that has ended and lies there: the system holds all of it."""
    fields = {"n": 16, "max_tokens": 90, "stream": True, "request_id": name}
    body = json.dumps({"prompt": "x" * 200, **fields})
    head = f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", server.port))
        client.sendall((head + body).encode())
        server.wait_for(lambda: get(server, f"/{name}/explain").json().get("status") == "length")
        yield client


def num_explained(server: LiveServer) -> int:
    return len(server.app.state.frontend.explanations.fold)


def test_what_a_client_leaves_lying_is_delivery(server: LiveServer) -> None:
    left_lying_s = 0.3
    with unread(server, "lying") as client:
        time.sleep(left_lying_s)
        assert get(server, "/lying/explain").json()["cause"] == "delivery"
        assert num_explained(server)
        while not client.recv(1 << 16).endswith(b"0\r\n\r\n"):
            pass
        server.wait_for(lambda: not num_explained(server))
    found = get(server, "/lying/explain").json()
    check(found)
    assert found["parts_ns"]["delivery"] > left_lying_s * 1e9


def test_who_goes_without_reading_takes_nothing_more(server: LiveServer) -> None:
    with unread(server, "gone"):
        assert num_explained(server)
    server.wait_for(lambda: not num_explained(server))
    check(get(server, "/gone/explain").json())


# ---- A real engine ----


@pytest.fixture(scope="module")
def tight_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """Chunked prompts, few slots, and a pool that the running outgrow."""
    directory = tmp_path_factory.mktemp("tight")
    make_tiny_llama(directory, vocab_size=258, max_position_embeddings=512, eos_token_id=256)
    config = EngineConfig(
        model=str(directory),
        dtype="float32",
        max_num_seqs=6,
        max_num_batched_tokens=64,
        num_gpu_blocks_override=40,
        num_threads=1,
        trace_steps=True,
    )
    with live_server(directory, start_engine=partial(start_engine_process, config)) as live:
        yield live


def test_every_request_of_a_crowd_adds_up_and_agrees_with_its_timings(
    tight_server: LiveServer,
) -> None:
    def one(number: int) -> dict[str, Any]:
        prompt = "shared beginning, " * (number % 3) + f"{number} " * (10 + number % 40)
        fields = {"max_tokens": 50, "ignore_eos": True, "explain": True, "include_metrics": True}
        return ask(tight_server, "completions", prompt, client=http, **fields).chunks[0]

    with httpx.Client(timeout=100) as http, ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(one, range(32)))
    explanations = [answer["explain"] for answer in answers]
    for answer in answers:
        check(answer["explain"])
        [sequence], timings = answer["explain"]["sequences"], answer["metrics"]
        assert timings["preemptions"] == sequence["preemptions"]
        assert timings["recomputed_tokens"] == sequence["recomputed_tokens"]
        parts = sequence["parts_ns"]
        assert parts["queue"] == pytest.approx(timings["queue_time_ms"] * 1e6, abs=1)
        if not sequence["preemptions"]:
            first_ns = parts["queue"] + parts["prefill"]
            assert first_ns == pytest.approx(timings["time_to_first_token_ms"] * 1e6, abs=1)
            rest_ns = parts["decode"] + parts["stall"]
            assert rest_ns == pytest.approx(timings["generation_time_ms"] * 1e6, abs=1)
    waits = {w["reason"] for e in explanations for s in e["sequences"] for w in s["waits"]}
    assert "step" in waits
    assert waits & {"slots", "blocks"}  # which of them is a matter of the clients' pace
    assert any(e["sequences"][0]["preemptions"] for e in explanations)
    assert any(e["sequences"][0]["stall"]["by"] for e in explanations)
    assert any(e["sequences"][0]["prefill"]["steps"] > 1 for e in explanations)
