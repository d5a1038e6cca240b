"""Limits of time and room, as a client sees them: statuses, headers and finish reasons."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.server.asking import BOTH, EITHER, ask, body_of, last_request, refused
from tests.server.bench import LiveServer, live_server


@BOTH
def test_deadline_of_the_client(server: LiveServer, endpoint: str) -> None:
    ask(server, endpoint, "x", max_tokens=1, headers={"x-request-deadline": "2.5"})
    request = last_request(server)
    assert request["limits"]["deadline_ns"] - request["arrival_ns"] == 2_500_000_000


@pytest.mark.parametrize("text", ["", "soon", "0", "-1", "nan", "inf", "1e99"])
def test_deadline_that_is_none(server: LiveServer, text: str) -> None:
    status, error, _ = refused(server, "chat", "x", headers={"x-request-deadline": text})
    assert (status, error["param"]) == (400, "x-request-deadline")


def test_limits_of_the_server(tmp_path: Path) -> None:
    with live_server(
        tmp_path, max_queue_time_s=1.5, max_request_seconds=20, default_deadline_s=30
    ) as live:
        ask(live, "chat", "x", max_tokens=1)
        request = last_request(live)
        assert request["limits"]["max_queue_ns"] == 1_500_000_000
        assert request["limits"]["max_run_ns"] == 20_000_000_000
        assert request["limits"]["deadline_ns"] - request["arrival_ns"] == 30_000_000_000


@EITHER
@pytest.mark.parametrize(
    ("cause", "status", "code", "settings"),
    [
        ("queue_time", 503, "queue_time_exceeded", {"max_queue_time_s": 5}),
        ("deadline", 504, "deadline_exceeded", {"default_deadline_s": 5}),
        ("deadline_unreachable", 504, "deadline_unreachable", {"default_deadline_s": 5}),
    ],
)
def test_out_of_time_before_a_token(
    tmp_path: Path, cause: str, status: int, code: str, settings: dict[str, Any], stream: bool
) -> None:
    with live_server(tmp_path, "--expire", cause, **settings) as live:
        found, error, headers = refused(live, "completions", "abc", stream=stream, n=2)
        assert (found, error["code"]) == (status, code)
        assert error["message"] == f"{cause} is over"
        assert ("retry-after" in headers) == (cause == "queue_time")


@BOTH
@EITHER
@pytest.mark.parametrize(
    ("cause", "stop"), [("run_time", "max_request_seconds"), ("deadline", "deadline")]
)
def test_out_of_time_later_gives_what_there_is(
    tmp_path: Path, endpoint: str, stream: bool, cause: str, stop: str
) -> None:
    with live_server(tmp_path, "--expire", cause, "--expire-after", "2") as live:
        said = ask(live, endpoint, "abcdef", stream=stream).choice()
        assert (said.text, said.finish, said.stop) == ("ab", "abort", stop)


@pytest.mark.parametrize("status", [429, 503])
def test_more_than_the_server_ever_takes_is_not_to_be_tried_again(
    tmp_path: Path, status: int
) -> None:
    with live_server(tmp_path, max_num_queued_reqs=2, queue_full_status=status) as live:
        found, error, headers = refused(live, "completions", ["a", "b"], n=2, max_tokens=1)
        assert (found, error["code"]) == (400, "request_never_fits")
        assert "asks for 4 sequences" in error["message"]
        assert "retry-after" not in headers
        assert not live.commands("SubmitMessage")
        refusals = httpx.get(live.url + "/metrics").text
        assert 'rejections_total{engine="0",model_name="echo",reason="never_fits"} 1.0' in refusals
        ask(live, "completions", ["a", "b"], max_tokens=1)


def test_an_id_in_use(slow_server: LiveServer) -> None:
    url = slow_server.url + "/v1/completions"
    body = body_of("completions", "abc", request_id="twin", max_tokens=50)
    with httpx.stream("POST", url, json={**body, "stream": True}) as first:
        lines = first.iter_lines()
        next(lines)
        again = httpx.post(url, json=body)
        assert again.status_code == 409
        assert again.json()["error"]["code"] == "request_id_in_use"
        rest = "".join(lines)
        assert rest.endswith("[DONE]")
    slow_server.wait_for(lambda: httpx.post(url, json=body).status_code == 200)


def test_who_is_refused_for_its_id_does_not_touch_the_times_of_the_first(
    slow_server: LiveServer,
) -> None:
    url = slow_server.url + "/v1/completions"
    body = body_of("completions", "abc", request_id="timed", max_tokens=20, include_metrics=True)
    with httpx.stream("POST", url, json={**body, "stream": True}) as first:
        lines = first.iter_lines()
        next(lines)
        assert httpx.post(url, json=body).status_code == 409
        metrics = [line for line in lines if '"metrics"' in line]
    assert metrics
    assert '"time_to_first_token_ms"' in metrics[-1]


def test_clamping(tmp_path: Path) -> None:
    with live_server(tmp_path, clamp_max_tokens=True) as live:
        answer = ask(live, "chat", "abc", max_tokens=64_000)
        assert answer.headers["x-headway-max-tokens"] == "2044"
        assert last_request(live)["sampling"]["max_tokens"] == 2044
        plain = ask(live, "chat", "abc", max_tokens=5)
        assert "x-headway-max-tokens" not in plain.headers
        status, error, _ = refused(live, "completions", "a" * 2048, max_tokens=5)
        assert (status, error["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize(("seed", "repeats"), [(7, True), (None, False)])
def test_the_servers_seed_draws_those_of_requests(
    tmp_path: Path, seed: int | None, repeats: bool
) -> None:
    def draw(directory: Path) -> list[int]:
        directory.mkdir()
        with live_server(directory, seed=seed) as live:
            for _ in range(3):
                ask(live, "chat", "abc", max_tokens=1)
            return [command["request"]["seed"] for command in live.commands("SubmitMessage")]

    first, second = draw(tmp_path / "a"), draw(tmp_path / "b")
    assert len(set(first)) == 3
    assert (first == second) is repeats


def test_request_id_headers(tmp_path: Path) -> None:
    with live_server(tmp_path, enable_request_id_headers=True) as live:
        answer = ask(live, "completions", "x", max_tokens=1)
        assert answer.id == "cmpl-" + answer.headers["x-request-id"]
        own = {"x-request-id": "mine"}
        for path in ("/health", "/v1/nothing"):
            assert httpx.get(live.url + path, headers=own).headers["x-request-id"] == "mine"
        assert len(httpx.get(live.url + "/version").headers["x-request-id"]) == 32


def test_a_dead_engine_says_when_to_come_again(tmp_path: Path) -> None:
    with live_server(tmp_path, "--die-after", "2") as live:
        status, error, headers = refused(live, "completions", "abcdef", max_tokens=9)
        assert (status, error["code"]) == (503, "engine_unavailable")
        assert "retry-after" in headers
