"""Tokens, health, load, version, models, cache: the endpoints around generation."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway import __version__
from headway.text.tokenizer import Tokenizer
from tests.server.asking import ask
from tests.server.bench import LiveServer, live_server


def test_tokenize_a_prompt_and_back(server: LiveServer) -> None:
    body = {"prompt": "grüß<|end|>", "return_token_strs": True}
    found = httpx.post(server.url + "/tokenize", json=body).json()
    ids = [*"grüß".encode(), 256]
    assert (found["count"], found["tokens"], found["max_model_len"]) == (len(ids), ids, 2048)
    assert found["token_strs"][-1] == "<|end|>"
    back = httpx.post(server.url + "/detokenize", json={"tokens": ids, "model": "echo"})
    assert back.json() == {"prompt": "grüß<|end|>"}


def test_tokenize_a_conversation(server: LiveServer) -> None:
    body = {"messages": [{"role": "user", "content": "hi"}]}
    found = httpx.post(server.url + "/tokenize", json=body).json()
    assert found["tokens"] == [104, 105, 256]
    assert found["token_strs"] is None


def test_tokenize_refuses(server: LiveServer) -> None:
    for body in ({}, {"prompt": "a", "messages": []}, {"prompt": "a", "model": "none"}):
        assert httpx.post(server.url + "/tokenize", json=body).status_code in (400, 404)
    assert httpx.post(server.url + "/detokenize", json={"tokens": [-1]}).status_code == 400


def test_ping_is_health(server: LiveServer) -> None:
    for answer in (httpx.get(server.url + "/ping"), httpx.post(server.url + "/ping")):
        assert (answer.status_code, answer.json()["status"]) == (200, "ok")


def test_version(server: LiveServer) -> None:
    assert httpx.get(server.url + "/version").json() == {"version": __version__}


def test_load_counts_what_is_under_way(slow_server: LiveServer) -> None:
    def load() -> int:
        return httpx.get(slow_server.url + "/load").json()["server_load"]

    assert load() == 0
    body = {"prompt": "abc", "max_tokens": 1900, "stream": True}
    with httpx.stream("POST", slow_server.url + "/v1/completions", json=body) as answer:
        lines = answer.iter_lines()
        next(lines)
        assert load() == 1
    slow_server.wait_for(lambda: load() == 0)


def test_closed_endpoints_say_how_to_open_them(server: LiveServer) -> None:
    closed = httpx.get(server.url + "/tokenizer_info")
    assert closed.status_code == 404
    assert "--enable-tokenizer-info-endpoint" in closed.json()["error"]["message"]
    assert httpx.post(server.url + "/reset_prefix_cache").status_code == 404


def test_opened_endpoints(tmp_path: Path) -> None:
    with live_server(tmp_path, is_debug=True, enable_tokenizer_info_endpoint=True) as live:
        card = httpx.get(live.url + "/tokenizer_info").json()
        assert (card["eos_token"], card["vocab_size"]) == ("<|end|>", 258)
        assert card["added_tokens_decoder"] == {"256": "<|end|>", "257": "<|other|>"}
        assert httpx.post(live.url + "/reset_prefix_cache").status_code == 200
        live.wait_for(lambda: bool(live.commands("ResetPrefixCacheMessage")))
        ask(live, "chat", "still here")


def test_long_work_on_text_is_done_beside_the_streams(
    server: LiveServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, set[str]] = {}

    def watch(name: str) -> None:
        real = getattr(Tokenizer, name)

        def watched(*args: Any, **kwargs: Any) -> Any:
            threads.setdefault(name, set()).add(threading.current_thread().name)
            return real(*args, **kwargs)

        monkeypatch.setattr(Tokenizer, name, watched)

    watch("encode_batch")  # lets others run meanwhile, which `encode` does not
    watch("decode")
    many = {"prompt": ["a" * 1000] * 30, "max_tokens": 1}
    assert httpx.post(server.url + "/v1/completions", json=many).status_code == 200
    tokens = {"tokens": [97] * 30_000}
    answer = httpx.post(server.url + "/detokenize", json=tokens)
    assert answer.json() == {"prompt": "a" * 30_000}
    for names in threads.values():
        assert all(name.startswith("asyncio_") for name in names), threads
    assert set(threads) == {"encode_batch", "decode"}
