"""headway doctor as it is called: addresses and files, good and bad, its output and exit code."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from headway.cli import doctor_sources
from headway.cli.doctor_report import print_report
from headway.cli.main import main
from headway.insight.doctor.diagnose import diagnose
from headway.insight.doctor.findings import Finding, Severity
from headway.insight.doctor.readings import Observation
from tests.insight.doctor.foreign import Seen, vllm
from tests.insight.doctor.foreign_situations import BUSY, steady

Answer = Callable[[BaseHTTPRequestHandler], None]
QUEUE = Seen(steady(4, 20), steady(9, 20), steady(0.2, 20), **BUSY)
REST = Seen(steady(0, 20), steady(0, 20), steady(0.0, 20))


@contextmanager
def served(answer: Answer) -> Iterator[str]:
    class Handling(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer(self)

        def log_message(self, *words: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handling)
    server.daemon_threads = True
    server.handle_error = lambda *who: None  # clients that have enough
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def say(status: int, body: bytes = b"") -> Answer:
    def answer(request: BaseHTTPRequestHandler) -> None:
        request.send_response(status)
        request.send_header("content-length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    return answer


def pages_of(seen: Seen, *, needs_key: str | None = None) -> Answer:
    """The next page of a vLLM server at each call; 404 beside /metrics."""
    number = iter(range(10_000))

    def answer(request: BaseHTTPRequestHandler) -> None:
        if request.path != "/metrics":
            return say(404)(request)
        if needs_key and request.headers["authorization"] != f"Bearer {needs_key}":
            return say(401)(request)
        n = next(number) % len(seen.running)
        say(200, vllm(seen, n, seen.life + n).encode())(request)

    return answer


@pytest.fixture(autouse=True)
def _plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.delenv("HEADWAY_API_KEY", raising=False)


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = main(["doctor", *words])
    said = capsys.readouterr()
    return code, said.out, said.err


def test_a_server_with_a_queue_is_a_warning(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with served(pages_of(QUEUE)) as url:
        code, out, _ = run(capsys, url, "--interval", "0.2")
    assert code == 1
    assert "What binds: slots." in out
    assert max(map(len, out.splitlines())) <= 80
    assert out.rstrip().endswith("warning")


def test_a_server_at_rest_is_healthy(capsys: pytest.CaptureFixture[str]) -> None:
    with served(pages_of(REST)) as url:
        code, out, _ = run(capsys, f"{url}/v1", "--interval", "0.2")
    assert code == 0
    assert "the server idles" in out


def test_keys_are_given_or_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    with served(pages_of(REST, needs_key="s3")) as url:
        assert run(capsys, url, "--interval", "0.2", "--api-key", "s3")[0] == 0
        code, _, err = run(capsys, url, "--interval", "0.2")
    assert code == 2
    assert "--api-key" in err


def test_watching_ends_after_so_many_reports(capsys: pytest.CaptureFixture[str], tmp_path) -> None:
    with served(pages_of(QUEUE)) as url:
        target = tmp_path / "report.json"
        words = (url, "--interval", "0.2", "--watch", "--count", "2", "--json", str(target))
        code, out, _ = run(capsys, *words)
    assert code == 1
    assert out.count("What binds: slots.") == 2
    report = json.loads(target.read_text())
    assert report["wall"] == "slots"
    assert report["worst"] == "warning"


def test_a_server_that_dies_while_it_is_watched_is_critical(
    capsys: pytest.CaptureFixture[str],
) -> None:
    answers = [pages_of(REST)] * 3 + [say(503)] * 20
    with served(lambda request: answers.pop(0)(request)) as url:
        code, out, _ = run(capsys, url, "--interval", "0.2")
    assert code == 3
    assert "stopped answering" in out


def drip(request: BaseHTTPRequestHandler) -> None:
    request.send_response(200)
    request.end_headers()
    for _ in range(40):
        request.wfile.write(b"#\n")
        request.wfile.flush()
        time.sleep(0.1)


def flood(request: BaseHTTPRequestHandler) -> None:
    """Much in few bytes."""
    body = gzip.compress(b"vllm:x 1\n" * 3_000_000)
    request.send_response(200)
    request.send_header("content-encoding", "gzip")
    request.send_header("content-length", str(len(body)))
    request.end_headers()
    request.wfile.write(body)


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        (say(404), "status 404"),
        (say(500), "status 500"),
        (say(200, b"<html>"), "web page"),
        (say(200, b"\xff\xfe\x00"), "no metrics of"),
        (drip, "did not end within"),
        (flood, "is compressed (gzip)"),
    ],
    ids=["404", "500", "html", "bytes", "drip", "flood"],
)
def test_what_does_not_answer_with_metrics(
    answer: Answer,
    part: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if answer is drip:
        monkeypatch.setattr(doctor_sources, "_ANSWER_S", 1.0)
    with served(answer) as url:
        code, out, err = run(capsys, url, "--interval", "0.2")
    assert (code, out) == (2, "")
    assert part in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "part"),
    [
        ((), "which server?"),
        (("http://127.0.0.1:1",), "no answer from http://127.0.0.1:1/metrics: "),
        (("http://",), "names no host"),
        (("http://host:port",), "is no address"),
        (("nowhere.txt",), "neither a file nor an address"),
        (("http://127.0.0.1:1", "--interval", "0"), "--interval must be"),
        (("http://127.0.0.1:1", "--count", "2"), "--watch"),
        (("http://127.0.0.1:1", "--max-num-seqs", "1.5"), "whole number"),
        (("http://127.0.0.1:1", "--nonsense"), "no flag --nonsense"),
        (("page.txt", "--watch"), "running server"),
    ],
)
def test_bad_words_get_one_sentence(
    words: tuple[str, ...], part: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = run(capsys, *words)
    assert (code, out) == (2, "")
    assert part in err
    assert err.count("\n") == 1


def saved(tmp_path, seen: Seen, numbers: tuple[int, ...]) -> list[str]:
    paths = [tmp_path / f"page-{n}.txt" for n in numbers]
    for n, path in zip(numbers, paths, strict=True):
        path.write_text(vllm(seen, n, seen.life + 10.0 * n))
    return [str(path) for path in paths]


def test_saved_pages_are_read_with_the_time_between_them(
    capsys: pytest.CaptureFixture[str], tmp_path
) -> None:
    paths = saved(tmp_path, QUEUE, (0, 1, 2))
    code, out, _ = run(capsys, *paths, "--interval", "10")
    assert code == 1
    assert "What binds: slots." in out
    assert "1,200.0 output tokens/s" in out


def test_one_page_says_less(capsys: pytest.CaptureFixture[str], tmp_path) -> None:
    code, out, _ = run(capsys, *saved(tmp_path, QUEUE, (0,)), "--max-num-seqs", "4")
    assert code == 1
    assert "one moment" in out
    assert "medium confidence" in out


@pytest.mark.parametrize("content", [b"", b"\x00\x01\x02", b"hello\n", b'{"kind":"header"}\n'])
def test_files_that_are_nothing_get_one_sentence(
    content: bytes, capsys: pytest.CaptureFixture[str], tmp_path
) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    code, out, err = run(capsys, str(path))
    assert (code, out) == (2, "")
    assert str(path) in err
    assert err.count("\n") == 1


def test_a_pipe_is_not_waited_for(capsys: pytest.CaptureFixture[str], tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (str(tmp_path / "pipe"), "/dev/zero"):
        code, out, err = run(capsys, path)
        assert (code, out) == (2, "")
        assert f"{path} is a pipe or a device" in err
    assert "- (standard input) is a pipe or a device" in run(capsys, "-")[2]


def test_what_is_named_cannot_move_the_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = "a\x1b[2J\x07\u202e"
    observation = Observation(source=f"{hostile}.txt", notes=(hostile,))
    finding = Finding(
        kind="x",
        severity=Severity.WARNING,
        title="One of them is slow.",
        subject=hostile,
        evidence=(f"request {hostile}",),
    )
    diagnosis = dataclasses.replace(diagnose(observation), findings=(finding,), notes=(hostile,))
    print_report(observation, diagnosis)
    out = capsys.readouterr().out
    assert out.count("a\\x1b[2J\\x07\\u202e") == 4
    assert out.replace("\n", "").isprintable()
