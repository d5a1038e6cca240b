"""`headway run-batch`: each line gets its answer, the server's own, or the reason why not."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from headway.cli import main as cli
from headway.cli.batch_file import AnswerFile, Line, answered, read_batch
from headway.cli.run_batch import run_batch
from headway.engine.config import EngineConfig
from headway.server.config import ServerConfig
from tests.cli.serve_fake import open_text
from tests.server import fake_engine

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
HELLO = {"messages": [{"role": "user", "content": "hello"}]}


def asked(name: str, url: str, body: object) -> str:
    return json.dumps({"custom_id": name, "method": "POST", "url": url, "body": body})


def run(tmp_path: Path, text: str, *engine_flags: str) -> tuple[int, list[dict[str, Any]]]:
    """Exit code and the lines of the output, by an engine that says what it is told."""
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text(text)
    code = run_batch(
        str(source),
        str(target),
        EngineConfig(),
        ServerConfig(),
        start_engine=fake_engine.start(tmp_path / "log", *engine_flags),
        open_text=open_text,
    )
    return code, [json.loads(line) for line in target.read_text().splitlines()]


def test_answers_are_the_servers_in_the_order_of_the_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = [f"text {number}" for number in range(40)]
    lines = [asked(t, COMPLETIONS, {"prompt": t, "max_tokens": len(t)}) for t in texts]
    code, told = run(tmp_path, "\n".join([asked("chat", CHAT, HELLO), "", *lines]))
    assert code == 0
    assert [one["custom_id"] for one in told] == ["chat", *texts]
    assert {one["error"] for one in told} == {None}
    assert {one["response"]["status_code"] for one in told} == {200}
    bodies = [one["response"]["body"] for one in told]
    assert bodies[0]["object"] == "chat.completion"
    assert bodies[0]["choices"][0]["message"]["content"] == "hello"
    assert [body["choices"][0]["text"] for body in bodies[1:]] == texts
    assert len({one["id"] for one in told}) == 41
    num_tokens = sum(body["usage"]["completion_tokens"] for body in bodies)
    assert f"41 requests answered with {num_tokens:,} tokens" in capsys.readouterr().err


def test_what_is_wrong_with_a_line_is_told_in_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = {
        asked("model", CHAT, {**HELLO, "model": "gpt-4o"}): (404, "model_not_found"),
        asked("value", COMPLETIONS, {"prompt": "x", "max_tokens": -1}): (400, "invalid_value"),
        "not JSON \x1b[2J": (None, "invalid_line"),
        asked("good", COMPLETIONS, {"prompt": "x"}): (None, "invalid_line"),
        asked("stream", CHAT, {**HELLO, "stream": True}): (None, "invalid_line"),
        asked("url", "/metrics", {}): (None, "invalid_line"),
        asked("body", CHAT, 3): (None, "invalid_line"),
        "[" * 100_000: (None, "invalid_line"),
    }
    code, told = run(tmp_path, "\n".join([asked("good", CHAT, HELLO), *wrong]))
    assert code == 1
    assert told[0]["error"] is None
    for one, (status, kind) in zip(told[1:], wrong.values(), strict=True):
        assert (one["response"] or {}).get("status_code") == status
        assert one["error"]["code"] == kind
        assert one["error"]["message"]
    names = ["good", "model", "value", None, "good", "stream", "url", "body", None]
    assert [one["custom_id"] for one in told] == names
    err = capsys.readouterr().err
    assert "1 request answered" in err
    assert "8 not served; the first is model: the model 'gpt-4o' does not exist here" in err
    assert "\x1b" not in err


def test_an_engine_that_dies_leaves_an_answer_on_every_line(tmp_path: Path) -> None:
    lines = [asked(str(i), COMPLETIONS, {"prompt": "x" * 90, "max_tokens": 90}) for i in range(9)]
    code, told = run(tmp_path, "\n".join(lines), "--die-after", "5")
    assert code == 1
    assert {one["error"]["code"] for one in told} == {"engine_unavailable"}
    assert len(told) == 9


def test_what_cannot_be_run_is_one_sentence_and_touches_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good, empty, old = tmp_path / "good", tmp_path / "empty", tmp_path / "old"
    good.write_text(asked("a", CHAT, HELLO))
    empty.write_text("\n\n")
    old.write_text("kept")
    for words, said in (
        ([], "--input-file is missing"),
        (["-i", str(good)], "--output-file is missing"),
        (["-i", "/nowhere", "-o", str(old)], "/nowhere: cannot be read"),
        (["-i", str(empty), "-o", str(old)], "is empty: give a request on each line"),
        (["-i", str(old), "-o", str(old)], "the answers would replace the requests"),
        (["-i", str(old), "-o", "x"], "none of its lines can be asked; line 1"),
        (["-i", str(good), "-o", "/nowhere/x"], "cannot be written"),
        (["-i", str(good), "-o", str(old), "--port", "3"], "--port is for headway serve"),
        (["-i", str(good), "-o", str(old), "/nowhere"], "/nowhere"),
        (["-i", str(good), "-o", str(old), "--frobnicate"], "there is no flag --frobnicate"),
    ):
        assert cli.main(["run-batch", *words]) == 2
        err = capsys.readouterr().err
        assert err.startswith("headway run-batch: ")
        assert said in err
        assert err.count("\n") == 1
    assert old.read_text() == "kept"


def test_a_full_disk_is_one_sentence() -> None:
    wanted = r"^/dev/full cannot be written: No space left"
    with pytest.raises(ValueError, match=wanted), AnswerFile("/dev/full") as answers:
        answers.add(0, answered(Line(custom_id="a"), 200, b"{}"))


def test_a_compressed_file_is_read_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl.gz"
    path.write_bytes(gzip.compress(asked("a", CHAT, HELLO).encode("utf-8-sig")))
    [line] = read_batch(str(path))
    assert (line.custom_id, line.url, json.loads(line.body)) == ("a", CHAT, HELLO)


def test_what_was_answered_before_it_was_cut_short_is_written(tmp_path: Path) -> None:
    path = tmp_path / "out"
    with AnswerFile(str(path)) as answers:
        for place in (3, 0, 2):
            answers.add(place, answered(Line(custom_id=str(place)), 200, b"{}"))
            written = [json.loads(line)["custom_id"] for line in path.read_text().splitlines()]
            assert written == ([] if place == 3 else ["0"])
    assert [json.loads(line)["custom_id"] for line in path.open()] == ["0", "2", "3"]
