"""Keys, origins, prefixes, and what the log says of it all, and does not say."""

from __future__ import annotations

import io
import json
import logging
import time
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI

from headway.server.log_format import JsonFormatter, relay
from headway.server.middleware import add_middleware, build_layers
from tests.server.bench import LiveServer, live_server
from tests.server.test_disconnects import send

KEYS = ("one", "zwei-ü")
BODY = {"prompt": "secret words", "max_tokens": 3}


def get(live: LiveServer, path: str, key: str | None = None, **headers: str) -> httpx.Response:
    if key is not None:
        headers["authorization"] = f"Bearer {key}"
    raw = {name: value.encode() for name, value in headers.items()}
    return httpx.get(live.url + path, headers=raw)


def test_everything_but_health_needs_one_of_the_keys(tmp_path: Path) -> None:
    with live_server(tmp_path, api_keys=KEYS) as live:
        for path in ("/health", "/ping"):
            assert get(live, path).status_code == 200
        guarded = ("/metrics", "/v1/models", "/version", "/load", "/docs", "/openapi.json", "/none")
        for path in (*guarded, "/health/", "//health", "/health/../v1/models"):
            answer = get(live, path)
            assert answer.status_code == 401, path
            assert answer.json()["error"]["code"] == "invalid_api_key"
            assert answer.headers["www-authenticate"] == "Bearer"
        for key in KEYS:
            assert get(live, "/v1/models", key).status_code == 200
        for wrong in ("on", "onee", "ONE", "one zwei-ü"):
            assert get(live, "/v1/models", wrong).status_code == 401
        assert get(live, "/v1/models", authorization="Basic one").status_code == 401


def test_metrics_may_be_opened(tmp_path: Path) -> None:
    with live_server(tmp_path, api_keys=KEYS, is_metrics_open=True) as live:
        assert get(live, "/metrics").status_code == 200
        assert get(live, "/v1/models").status_code == 401


def test_a_prefix_opens_nothing_more(tmp_path: Path) -> None:
    with live_server(tmp_path, api_keys=KEYS, root_path="/api") as live:
        assert get(live, "/api/health").status_code == 200
        assert get(live, "/health").status_code == 200
        assert get(live, "/api/v1/models").status_code == 401
        assert get(live, "/api/v1/models", "one").status_code == 200
        assert get(live, "/health/v1/models").status_code == 401


def test_browsers_are_kept_out_unless_let_in(tmp_path: Path) -> None:
    ask = {"origin": "http://page", "access-control-request-method": "POST"}
    with live_server(tmp_path) as closed:
        assert "access-control-allow-origin" not in get(closed, "/version", **ask).headers
        preflight = httpx.options(closed.url + "/v1/completions", headers=ask)
        assert preflight.status_code == 405
    settings = {"allowed_origins": ("http://page",), "api_keys": KEYS}
    with live_server(tmp_path, **settings) as opened:
        preflight = httpx.options(opened.url + "/v1/completions", headers=ask)
        assert preflight.status_code == 200
        assert preflight.headers["access-control-allow-origin"] == "http://page"
        refused = get(opened, "/version", origin="http://page")
        assert refused.status_code == 401
        assert refused.headers["access-control-allow-origin"] == "http://page"
        other = get(opened, "/version", "one", origin="http://other")
        assert "access-control-allow-origin" not in other.headers


class OwnLayer:
    """An operator's ASGI class."""

    def __init__(self, app):
        self._app = app

    async def __call__(self, scope, receive, send):
        async def mark(message):
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-class", b"1")]
            await send(message)

        await self._app(scope, receive, mark)


async def own_function(request, call_next):
    answer = await call_next(request)
    answer.headers["x-function"] = "1"
    return answer


def test_the_operators_own_layers(tmp_path: Path) -> None:
    paths = (f"{__name__}.OwnLayer", f"{__name__}.own_function")
    with live_server(tmp_path, middleware=paths) as live:
        headers = get(live, "/version").headers
        assert (headers["x-class"], headers["x-function"]) == ("1", "1")


class LayerOfFive:
    def __init__(self, app, one, two, three, four):
        raise AssertionError("it cannot be made")


@pytest.mark.parametrize(
    ("path", "sentence"),
    [
        ("nonsense", "cannot be imported"),
        ("..relative", "cannot be imported: TypeError"),
        (f"{__name__}.KEYS", "neither a class nor a coroutine function"),
        (f"{__name__}.LayerOfFive", "cannot be put round the server: TypeError"),
    ],
)
def test_a_layer_that_cannot_be_is_said_at_the_start(path: str, sentence: str) -> None:
    """Not at the first request, and at every one after it."""

    def set_up() -> None:
        app = FastAPI()
        add_middleware(app, path)
        build_layers(app)

    with pytest.raises(ValueError, match=sentence):
        set_up()


def test_one_line_per_request(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "headway.access")
    with live_server(tmp_path, "--delay", "0.02", hidden_paths=("/health",)) as live:
        get(live, "/health")
        get(live, "/version?key=secret", **{"x-request-id": "mine"})
        get(live, "/none/%0Aforged%20line")
        httpx.post(live.url + "/v1/completions", json=BODY, headers={"x-request-id": "abc"})
        connection = send(live, {**BODY, "max_tokens": 1900, "ignore_eos": True, "stream": True})
        assert b"200 OK" in connection.recv(4096)
        connection.close()
        live.wait_for(lambda: len(caplog.records) == 4)
        metrics = httpx.get(live.url + "/metrics").text
    visits = caplog.records[:4]
    shown = [(r.method, r.path, r.status) for r in visits]  # type: ignore[attr-defined]
    assert shown == [
        ("GET", "/version", 200),
        ("GET", "/none/?forged?line", 404),
        ("POST", "/v1/completions", 200),
        ("POST", "/v1/completions", 499),
    ]
    counted = 'http_requests_total{handler="/v1/completions",method="POST",status="%s"} 1.0'
    assert counted % "2xx" in metrics
    assert counted % "4xx" in metrics
    assert 'handler="other",method="GET",status="4xx"' in metrics
    lines = [record.getMessage() for record in caplog.records]
    assert lines[0].endswith(" ms mine")
    assert "abc" in lines[2]
    assert all("secret" not in line and "\n" not in line for line in lines)


def test_no_text_in_any_log_unless_asked(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    bodies = [BODY, {**BODY, "temperature": -1}, {**BODY, "stream": True}, {**BODY, "model": "x"}]
    for settings in ({}, {"enable_log_requests": True}):
        with live_server(tmp_path, "--die-after", "20", **settings) as live:
            for body in bodies:
                httpx.post(live.url + "/v1/completions", json=body)
            httpx.post(live.url + "/v1/completions", content=b'{"prompt": "secret words", ')
            httpx.post(live.url + "/v1/completions", json={**BODY, "max_tokens": 50})
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert "12 prompt tokens, n=1, max_tokens=3" in said
    assert "secret" not in said
    with live_server(tmp_path, enable_log_requests=True, max_log_len=6) as live:
        httpx.post(live.url + "/v1/completions", json=BODY)
    said = "\n".join(record.getMessage() for record in caplog.records)
    assert "prompt: 'secret'" in said
    assert "words" not in said


def test_what_the_engine_writes_becomes_log_lines(caplog: pytest.LogCaptureFixture) -> None:
    relay(io.BytesIO("one\nzwei ü\n\xff".encode("latin-1")))
    deadline = time.monotonic() + 5
    while len(caplog.records) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    said = [(record.name, record.getMessage()) for record in caplog.records]
    assert said == [("headway.engine", line) for line in ("one", "zwei \ufffd", "\ufffd")]


def test_json_lines() -> None:
    record = logging.LogRecord("uvicorn.error", logging.WARNING, "f", 1, "a %s\n", ("b",), None)
    record.__dict__ |= {"method": "GET", "status": 200}
    (line,) = JsonFormatter().format(record).splitlines()
    entry = json.loads(line)
    assert entry.pop("time").endswith("+00:00")
    assert entry == {
        "level": "warning",
        "logger": "uvicorn.error",
        "message": "a b\n",
        "method": "GET",
        "status": 200,
    }
