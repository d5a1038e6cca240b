"""`headway explain` as its users meet it: recordings, servers, and everything that is neither."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from headway.cli.main import main
from tests.cli.live_process import free_port
from tests.server.asking import ask
from tests.server.bench import live_server

WORKLOAD = ["--rate", "40", "--requests", "25", "--prompt-tokens", "400", "--output-tokens", "60"]


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recorded") / "run.jsonl"
    words = ["simulate", "Qwen3-8B", *WORKLOAD, "--kv-cache-memory-bytes", "1GiB", "--no-inert"]
    assert main([*words, "--record", str(path)]) == 0
    return path


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(["explain", *words]) == 0
    told = capsys.readouterr()
    assert told.err == ""
    return told.out


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The sentence for what cannot be explained."""
    capsys.readouterr()
    assert main(["explain", *words]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    [line] = told.err.splitlines()
    return line.removeprefix("headway explain: ")


@pytest.mark.parametrize("columns", [80, 160])
def test_a_recorded_request_in_words_and_bars(
    recording: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    columns: int,
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    listed = said(capsys, "--recording", str(recording), "--slowest", "3")
    assert listed.count("queue: blocks") >= 1
    name = listed.split()[1]
    shown = said(capsys, name, "--recording", str(recording))
    assert "mostly held by" in " ".join(shown.split())
    for part in ("queue", "prefill", "decode"):
        assert f"\n{part} " in shown
    assert "█" in shown
    assert "\x1b" not in shown
    assert max(map(len, shown.splitlines())) <= columns
    assert max(map(len, shown.splitlines())) > columns * 3 // 4


def test_json_adds_up(recording: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = json.loads(said(capsys, "--recording", str(recording), "--json", "--slowest", "25"))
    assert len(rows) == 25
    assert [row["e2e_ns"] for row in rows] == sorted((r["e2e_ns"] for r in rows), reverse=True)
    for row in rows:
        assert sum(row["parts_ns"].values()) == row["e2e_ns"]
    one = json.loads(said(capsys, rows[0]["request_id"], "--json", "--recording", str(recording)))
    assert one["parts_ns"] == rows[0]["parts_ns"]


def test_a_recording_that_breaks_off_is_explained_up_to_there(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = recording.read_text().splitlines(keepends=True)
    cut = tmp_path / "cut.jsonl"
    cut.write_text("".join(lines[: len(lines) // 2]) + lines[-1][:20])
    assert "running" in said(capsys, "--recording", str(cut), "--slowest", "20")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("a", "b"), "one request at a time: 'a' or 'b'?"),
        (("a", "--slowest", "3"), "ask for different things"),
        (("--slowest", "0"), "--slowest must be from 1 to 100, got '0'"),
        (("--slowest", "²"), "--slowest must be from 1 to 100"),
        (("--slowest",), "--slowest needs a value"),
        (("--nonsense",), "there is no flag --nonsense"),
        (("a", "--recording", "x", "--url", "http://h"), "leave --url and --api-key out"),
        (("a", "--url", "ftp://host"), "'ftp://host' is not the URL of a server"),
        (("a", "--url", "http://[::1"), "is not the URL of a server"),
        (("a", "--url", ""), "is not the URL of a server"),
        (("a", "--recording", "/nowhere"), "cannot be read"),
    ],
)
def test_what_is_no_question(
    words: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sentence in refused(capsys, *words)


def test_files_that_are_no_recordings(
    recording: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, content in enumerate((b"", b"\x00\xff garbage\n{}\n", b"[1]\n[2]\n")):
        path = tmp_path / f"{number}.jsonl"
        path.write_bytes(content)
        assert str(path) in refused(capsys, "x", "--recording", str(path))
    assert "no request 'x' is in" in refused(capsys, "x", "--recording", str(recording))
    other = tmp_path / "other.jsonl"
    other.write_text(re.sub(r'"max_num_seqs":\d+', '"max_num_seqs":2', recording.read_text()))
    assert "not this scheduler's" in refused(capsys, "x", "--recording", str(other))


def test_a_server_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with live_server(tmp_path, api_keys=("key",)) as server:
        headers = {"authorization": "Bearer key"}
        ask(server, "chat", "abc", max_tokens=5, headers={**headers, "x-request-id": "mine"})
        at = ("--url", server.url + "/v1", "--api-key", "key")
        assert "chatcmpl-mine" in said(capsys, *at)
        assert "4 tokens in, 4 out" in said(capsys, "mine", *at)
        assert "no request 'nobody' is under way" in refused(capsys, "nobody", *at)
        assert "asks for a key" in refused(capsys, "mine", "--url", server.url)


def test_one_of_several_says_which_and_how_to_see_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with live_server(tmp_path) as server:
        body = {"n": 2, "max_tokens": 3, "request_id": "mine"}
        ask(server, "completions", ["ab", "abc", "abcd"], **body)
        first = said(capsys, "mine", "--url", server.url)
        assert " ".join(first.split()).startswith(
            "cmpl-mine-0 length, 2 tokens in, 6 out This is prompt 0 of 3, counted from 0; of the "
            "others tells headway explain with cmpl-mine-1, cmpl-mine-2 This is choice "
        )
        assert len(re.findall(r"\nchoice [01]: length after ", first)) == 1
        third = said(capsys, "cmpl-mine-2", "--url", server.url)
        assert "This is prompt 2 of 3" in third
        ask(server, "completions", "ab", max_tokens=3, request_id="mine")  # an id used again
        assert "This is" not in said(capsys, "mine", "--url", server.url)


@contextmanager
def answering(status: int, content: bytes) -> Iterator[str]:
    """Something that is no Headway server."""

    class Anything(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *args: object) -> None:
            """Tests are quiet."""

    http = HTTPServer(("127.0.0.1", 0), Anything)
    thread = threading.Thread(target=http.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{http.server_port}"
    finally:
        http.shutdown()
        http.server_close()


@pytest.mark.parametrize(
    ("status", "content", "sentence"),
    [
        (200, b"<html>", "not as a Headway server"),
        (200, b"\xff\xfe", "not as a Headway server"),
        (200, b"[" * 100_000, "not as a Headway server"),
        (200, b'{"request_id": 1}', "not as a Headway server"),
        (200, b'{"data": [{"request_id": "x"}]}', "not as a Headway server"),
        (404, b'{"detail": "Not Found"}', "answers with status 404"),
        (500, b"\xff", "answers with status 500"),
        (400, b'{"error": {"message": "no\\u001b[2J\\u0007"}}', "no\\x1b[2J\\x07"),
        (400, b'{"error": {"message": "%s"}}' % (b"no" * 9999), "nono"),
    ],
)
def test_others_that_answer(
    status: int, content: bytes, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with answering(status, content) as url:
        assert sentence in refused(capsys, "x", "--url", url)
        assert sentence in refused(capsys, "--url", url)[:500]


def test_nobody_answers(capsys: pytest.CaptureFixture[str]) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    assert f"no answer from {url}" in refused(capsys, "x", "--url", url)


def test_what_a_server_says_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    row = {
        "request_id": "\x1b[2Jx\r\n",
        "status": "stop",
        "verdict": "[bold]y\x1b]0;z\x07",
        "cause": "decode",
        "e2e_ns": 1,
        "parts_ns": {},
    }
    with answering(200, json.dumps({"data": [row]}).encode()) as url:
        shown = said(capsys, "--url", url)
    assert "\x1b" not in shown
    assert "\r" not in shown
    assert "[bold]y" in shown
