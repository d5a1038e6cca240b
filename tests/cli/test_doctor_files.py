"""`headway doctor` on files: usage and logs, and what is neither."""

from __future__ import annotations

import json

import pytest

from headway.cli.main import main
from tests.insight.usage.days import chat, written

STAT = (
    "INFO 03-17 15:38:{second} [loggers.py:259] Engine 000: Avg prompt throughput: 0.0 tokens/s, "
    "Avg generation throughput: 812.4 tokens/s, Running: 83 reqs, Waiting: 41 reqs, "
    "Preemptions: 38, GPU KV cache usage: 99.8%, Prefix cache hit rate: 12.3%\n"
)


@pytest.fixture(autouse=True)
def few_sizes(monkeypatch):
    monkeypatch.setattr("headway.cli.doctor_usage.BATCH_SIZES", (1, 8))


def ran(capsys, *words: str) -> tuple[int, str, str]:
    code = main(["doctor", *map(str, words)])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_usage(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "day.jsonl", chat(200, model="llama"))
    code, out, _ = ran(capsys, "day.jsonl", "--json", "day.json", "--plot", "day.svg")
    assert code == 0
    assert out.startswith("usage: day.jsonl, 200 answers\n\nContinuous batching is worth much")
    assert "Llama-3-8B on h100" in out
    told = json.loads((tmp_path / "day.json").read_text())
    assert [point["batch_size"] for point in told["batching"]["points"]] == [1, 8]
    assert told["worst"] == "healthy"
    assert (tmp_path / "day.svg").read_text().startswith("<?xml")


def test_usage_against_a_baseline(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "then.jsonl", chat(200))
    written(tmp_path / "now.jsonl", chat(200, cut=1.0, limit=300))
    code, out, _ = ran(capsys, "now.jsonl", "--baseline", "then.jsonl", "--hardware", "l4")
    assert code == 3
    assert "in the baseline it is 0.0%, 200 answers" in out
    assert "Llama-3-8B on l4" in out


def test_a_log(tmp_path, capsys):
    path = tmp_path / "server.log"
    path.write_text("".join(STAT.format(second=second) for second in range(10, 60, 10)))
    code, out, _ = ran(capsys, path, "--max-num-seqs", "256", "--last", "30")
    assert code in (1, 3)
    assert out.startswith(f"vllm: {path}, 3 moments, 30 s\n\nWhat binds: KV memory")
    assert "114 preemptions in 30 s" in out


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["day.jsonl", "--last", "5"], "--last is for a log, and this is a file of usage"),
        (["server.log", "--plot", "a.png"], "--plot is for a file of usage, and this is a log"),
        (["server.log", "--hardware", "l4"], "--hardware is for a file of usage"),
        (["day.jsonl", "--interval", "5"], "--interval is for a running server and saved pages"),
        (["day.jsonl", "server.log"], "one file at a time"),
        (["day.jsonl", "--plot", "none/a.png"], "--plot none/a.png cannot be written"),
        (["day.jsonl", "--plot", "a.txt"], "ends in .png or .svg"),
        (["day.jsonl", "--baseline", "server.log"], "server.log: has no answer with a usage"),
        (["day.jsonl", "--step-time", "none"], "none"),
        (["day.jsonl", "--step-time", "none", "--dtype", "float32"], "--dtype changes nothing"),
        (["words.txt"], "words.txt"),
        (["llama.log"], "llama.cpp's log does not say"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence(tmp_path, monkeypatch, capsys, words, why):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "day.jsonl", chat(50))
    (tmp_path / "server.log").write_text(STAT.format(second=10))
    (tmp_path / "words.txt").write_text("Some words.\nNo more.\n")
    (tmp_path / "llama.log").write_text("slot print_timing: id  0 | task 0 |\n")
    code, out, err = ran(capsys, *words)
    assert (code, out) == (2, "")
    assert why in err
    assert err.startswith("headway doctor: ")
    assert err.count("\n") == 1
