"""`headway verify` as its user runs it."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
import uvicorn

from headway.cli import main as cli
from headway.cli.serve import start_engine_process
from headway.engine.config import EngineConfig
from tests.bench.fake_server import FakeServer, Planted
from tests.model.tiny import make_tiny_llama
from tests.server.bench import live_server


@contextmanager
def serving(fake: FakeServer) -> Iterator[str]:
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.bind(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(fake, lifespan="off", log_config=None, timeout_graceful_shutdown=1)
    )
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    listener.listen()
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/v1"
    finally:
        server.should_exit = True
        thread.join(20)


@pytest.fixture
def prompts(tmp_path: Path) -> str:
    path = tmp_path / "prompts.txt"
    path.write_text("a\n\nb\nc\n")
    return str(path)


def test_a_server_that_differs(
    prompts: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = tmp_path / "found.json"
    flags = ["--prompts", prompts, "--concurrency", "1,4", "--max-tokens", "8"]
    turns = iter([False, True, False, True])  # alone, among others, and both again
    planted = {"b": Planted(3, when=lambda in_flight: next(turns))}
    with serving(FakeServer(planted=planted)) as url:
        assert cli.main(["verify", url, *flags, "--json", str(found)]) == 1
    said = capsys.readouterr().out
    assert "fake, chat, 3 prompts, at most 8 tokens, temperature 0, rounds: 2" in said
    assert "prompt 2 'b', 4 in flight, round 1:" in said
    assert "parts at token 3 / character 14, after 'one two three '" in said
    assert "a swing of 2.5" in said
    assert "2 of 9 answers differ from the same prompt's alone, of 1 of 3 prompts." in said
    told = json.loads(found.read_text())
    assert told["num_different"] == 2
    assert told["differences"][0]["difference"]["token_index"] == 3
    assert told["differences"][0]["swing"] == {"nats": 2.5, "is_at_least": False}


def test_other_logprobs_count_where_one_is_strict(prompts: str) -> None:
    flags = ["--prompts", prompts, "--concurrency", "1"]
    with serving(FakeServer(drift_per_request=0.001)) as url:
        assert cli.main(["verify", url, *flags]) == 0
        assert cli.main(["verify", url, *flags, "--strict"]) == 1


def test_a_failed_request_is_neither_equal_nor_different(
    prompts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fake = FakeServer(failing={"c": (503, {"error": {"message": "the queue is full"}})})
    with serving(fake) as url:
        assert cli.main(["verify", url, "--prompts", prompts, "--concurrency", "2"]) == 2
    said = capsys.readouterr().out
    assert "4 requests failed, which says nothing about differences:" in said
    assert "4 x HTTP 503: the queue is full" in said
    assert "1 prompts got no answer alone" in said


def test_headway_with_a_tiny_model_never_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "prompts.txt"
    path.write_text(
        "a\nWie geht es dir?\n用三句话介绍长城。\n" + "\n".join(["x" * 300, "y" * 70, "z"])
    )
    make_tiny_llama(tmp_path, vocab_size=258, max_position_embeddings=2048, eos_token_id=256)
    config = EngineConfig(
        model=str(tmp_path),
        dtype="float32",
        max_num_seqs=16,
        max_num_batched_tokens=64,
        num_gpu_blocks_override=140,  # too few for sixteen of them
        num_threads=1,
    )
    flags = ["--prompts", str(path), "--concurrency", "1,8,24", "--max-tokens", "12", "--strict"]
    with live_server(tmp_path, start_engine=partial(start_engine_process, config)) as live:
        assert cli.main(["verify", live.url, *flags]) == 0
    said = capsys.readouterr().out
    assert "All 30 answers are those that the same prompt got alone." in said
    assert "token ids, the text, why it ended, and the logprobs" in said


URL = "http://127.0.0.1:9"  # the discard port: nothing listens there


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "give one URL"),
        ([URL, URL], "give one URL"),
        (["ftp://x"], "'ftp://x' is not the URL of a server"),
        (["http://[::1"], "is not the URL of a server"),
        (["http://h:99999"], "is not the URL of a server"),
        ([URL, "--concurency", "1"], "there is no flag --concurency"),
        ([URL, "--concurrency", "1,x"], "--concurrency takes whole numbers"),
        ([URL, "--concurrency", "0"], "--concurrency must be in [1, 4096]"),
        ([URL, "--concurrency"], "--concurrency needs a value"),
        ([URL, "--concurrency", "1", "--rounds", "1"], "once alone has nothing to compare with"),
        ([URL, "--rounds", "0"], "--rounds must be a whole number in [1, 10000], got '0'"),
        ([URL, "--temperature", "nan"], "--temperature must be a number in [0, 100]"),
        ([URL, "--endpoint", "responses"], "--endpoint must be chat or completions"),
        ([URL, "--json", "/nowhere/x"], "--json /nowhere/x cannot be written"),
        ([URL, "--prompts", "/nowhere"], "/nowhere is no file"),
        ([URL], f"no answer from {URL}: "),
    ],
)
def test_what_cannot_be_run_is_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["verify", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("headway verify: ")
    assert sentence in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.txt", b"\n \n", "has no prompts"),
        ("a.txt", b"\xff\xfe\x00", "is no text in UTF-8"),
        ("a.jsonl", b'"x"\n{"prompt": 3}', "line 2: Expected `str | null`, got `int`"),
        ("a.jsonl", b"{}", "line 1 has neither prompt nor messages"),
        ("a.jsonl", b"[" * 100_000, "line 1: "),
    ],
)
def test_a_file_without_prompts_is_one_sentence(
    name: str, content: bytes, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert cli.main(["verify", URL, "--prompts", str(path)]) == 2
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1


def test_conversations_are_asked_as_such(tmp_path: Path) -> None:
    path = tmp_path / "prompts.jsonl"
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "b"}]
    lines = ['"a"', json.dumps({"messages": messages}), json.dumps({"prompt": "c"})]
    path.write_text("\n".join(lines))
    fake = FakeServer()
    flags = ["--prompts", str(path), "--concurrency", "1"]
    with serving(fake) as url:
        assert cli.main(["verify", url, *flags]) == 0
        assert cli.main(["verify", url, *flags, "--endpoint", "completions"]) == 2
    assert messages in [body["messages"] for body in fake.bodies]
