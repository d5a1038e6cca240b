"""`headway bench serve` against a server on a real socket: what is printed, written and refused."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from headway.cli.bench.command import main
from headway.drive.recording import Arrival
from headway.simulator.step_time.files import write_model
from tests.cli.bench_server import serving
from tests.cli.test_replay import STEP_MODEL
from tests.replay.recorded_run import record_run
from tests.replay.test_measured import CONFIG, asked

SMALL = ["--num-prompts", "6", "--random-input-len", "5", "--random-output-len", "3"]


def serve(*words: str) -> int:
    return main(["serve", *words])


def test_one_load_is_told_in_tables(capsys: pytest.CaptureFixture[str]) -> None:
    with serving() as (url, bodies):
        code = serve(url, *SMALL, "--request-rate", "200", "--goodput", "ttft:60000", "e2el:60000")
    out = capsys.readouterr().out
    assert code in (0, 1)  # 1 where this machine was too busy for it
    assert "requests served" in out
    assert re.search(r"requests served\s+6 of 6\n", out)
    assert re.search(r"output tokens\s+18\n", out)
    assert re.search(r"requests that met the objectives\s+100\.0%\n", out)
    for name in ("TTFT", "TPOT", "ITL", "e2e"):
        assert f"({name})" in out
    assert len(bodies) == 7  # with the one that warms up
    assert all(len(body["prompt"]) == 5 and body["max_tokens"] == 3 for body in bodies)
    assert all(body["stream_options"] == {"include_usage": True} for body in bodies)


def test_no_two_prompts_are_alike_and_a_text_seed_repeats_them() -> None:
    with serving() as (url, bodies):
        for _ in range(2):
            serve(url, *SMALL, "--text-seed", "7", "--num-warmups", "0", "--disable-tqdm")
        serve(url, *SMALL, "--num-warmups", "0")
    prompts = [tuple(body["prompt"]) for body in bodies]
    assert sorted(prompts[:6]) == sorted(prompts[6:12])
    assert len({*prompts[:6], *prompts[12:]}) == 12


def test_chat_asks_in_words() -> None:
    with serving() as (url, bodies):
        serve(url, *SMALL, "--backend", "openai-chat", "--extra-body", '{"top_k": 5}')
    assert len(bodies[0]["messages"][0]["content"].split()) == 5
    assert bodies[0]["max_completion_tokens"] == 3
    assert bodies[0]["top_k"] == 5


def test_files_hold_every_rate(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = ("r.json", "r.csv", "r.html", "r.png")
    files = [word for name in names for word in (f"--{name[2:]}", str(tmp_path / name))]
    with serving() as (url, _):
        assert serve(url, *SMALL, "--request-rate", "100,300", *files, "--save-detailed") < 2
    out = capsys.readouterr().out
    assert "of these" in out  # rates, or the best of them
    report = json.loads((tmp_path / "r.json").read_text())
    assert [point["rate"] for point in report["points"]] == [100.0, 300.0]
    assert [len(point["requests"]) for point in report["points"]] == [6, 6]
    assert all(len(request["events_s"]) == 3 for request in report["points"][0]["requests"])
    assert report["points"][0]["endings"] == {"served": 6}
    with (tmp_path / "r.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["num_served"] for row in rows] == ["6", "6"]
    page = (tmp_path / "r.html").read_text()
    assert page.count("<svg") >= 4
    assert not re.search(r"(src|href|@import|url)\s*[=(]", page)
    assert (tmp_path / "r.png").read_bytes().startswith(b"\x89PNG")


def test_what_a_server_says_is_text_in_the_report(tmp_path: Path) -> None:
    page = tmp_path / "r.html"
    with serving("hostile") as (url, _):
        serve(url, *SMALL, "--request-rate", "100", "--html", str(page), "--label", "<b>x</b>")
    assert "<script" not in page.read_text()
    assert "<b>" not in page.read_text()
    assert "&lt;script&gt;alert(1)" in page.read_text()


def test_the_result_has_vllms_names(tmp_path: Path) -> None:
    with serving() as (url, _):
        words = ["--request-rate", "100", "--save-result", "--result-dir", str(tmp_path / "made")]
        serve(url, *SMALL, *words, "--metadata", "gpu=none", "a=b", "--save-detailed")
    (path,) = (tmp_path / "made").iterdir()
    result = json.loads(path.read_text())
    assert path.name.startswith("openai-100.0qps-tiny-")
    assert {"mean_ttft_ms", "median_itl_ms", "std_tpot_ms", "p99_e2el_ms"} <= set(result)
    assert (result["completed"], result["failed"], result["gpu"]) == (6, 0, "none")
    assert result["output_lens"] == [3] * 6


@pytest.mark.parametrize("columns", [80, 160])
def test_a_terminal_of_any_width_holds_the_tables(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    with serving() as (url, _):
        serve(url, *SMALL, "--request-rate", "100,300", "--disable-tqdm")
    out = re.sub(r"\x1b\[[0-9;]*m", "", capsys.readouterr().out)
    (head,) = [line for line in out.splitlines() if "TTFT p50" in line]
    assert len(head) <= columns
    assert ("most at once" in head) is (columns == 160)


def test_ctrl_c_leaves_what_was_measured(tmp_path: Path) -> None:
    report = tmp_path / "r.json"
    with serving("slow") as (url, bodies):
        words = ["bench", "serve", url, "--request-rate", "20", "--num-prompts", "500"]
        words += ["--random-input-len", "5", "--random-output-len", "2", "--json", str(report)]
        source = str(Path(__file__).parents[2] / "src")
        process = subprocess.Popen(
            [sys.executable, "-m", "headway", *words],
            env={**os.environ, "PYTHONPATH": source},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        until = time.monotonic() + 60
        while len(bodies) < 20 and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "interrupted" in error
    assert "Traceback" not in error
    assert "requests served" in out
    (point,) = json.loads(report.read_text())["points"]
    assert point["is_cut"]
    assert sum(point["endings"].values()) == point["num_requests"] == 500
    assert 10 <= point["endings"]["served"] < 100
    assert point["endings"]["not sent before the end"] > 400


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--request-rate", "-1"], "--request-rate must be above 0"),
        (["--request-rate", "1,1"], "has a rate twice"),
        (["--request-rate", "1,inf"], "inf goes alone"),
        (["--request-rate", "x"], "--request-rate must be above 0"),
        (["--num-prompts", "0"], "--num-prompts must be a number in [1,"),
        (["--num-prompts", "1.5"], "must be a whole number"),
        (["--goodput", "speed:3"], "--goodput takes"),
        (["--metric-percentiles", "0"], "--metric-percentiles takes"),
        (["--percentile-metrics", "x"], "--percentile-metrics takes"),
        (["--header", "nothing"], "--header takes KEY=VALUE"),
        (["--extra-body", "{"], "--extra-body is not JSON"),
        (["--extra-body", "[]"], "must be a JSON object"),
        (["--dataset-name", "sonnet"], "--dataset-name must be one of"),
        (["--dataset-name", "sharegpt"], "needs its file: --dataset-path"),
        (["--dataset-path", "/nowhere.csv"], "/nowhere.csv"),
        (["--recording", "/nowhere.jsonl"], "/nowhere.jsonl"),
        (["--simulate-from", "/nowhere.jsonl"], "/nowhere.jsonl"),
        (["--step-time", "/nowhere.json"], "/nowhere.json"),
        (["--backend", "tgi"], "--backend must be one of"),
        (["--endpoint", "v1"], "--endpoint is a path"),
        (["--prompt-style", "x"], "--prompt-style must be ids or words"),
        (["--json", "/nowhere/x.json"], "--json /nowhere/x.json cannot be written"),
        (["--html", "-"], "takes a file"),
        (["--profile"], "use the server's own profiler"),
        (["--max-num-seqs", "8"], "--max-num-seqs is a setting of a server"),
        (["--frobnicate", "8"], "--frobnicate"),
        (["ftp://host"], "is not the URL of a server"),
        (["http://host:99999"], "is not the URL of a server"),
        (["http://user@host"], "has no user, query or fragment"),
        (["http://127.0.0.1:1"], "no answer from http://127.0.0.1:1: "),
        (["http://a", "--port", "3"], "which server?"),
    ],
)
def test_what_cannot_be_measured_is_one_sentence(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    where = [] if "://" in words[0] else ["http://127.0.0.1:1"]
    assert serve(*where, *words) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error


def test_a_picture_that_cannot_be_drawn_is_refused_before_the_load(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("headway.cli.readouts.find_spec", lambda name: None)
    assert serve("http://127.0.0.1:1", "--png", "x.png") == 2
    assert "--png needs matplotlib: pip install" in capsys.readouterr().err


def test_a_server_that_refuses_the_first_request_is_not_loaded(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serving("refusing") as (url, bodies):
        assert serve(url, *SMALL) == 2
    assert len(bodies) == 1
    assert "refused with 404: no such model" in capsys.readouterr().err


def test_a_load_of_which_nobody_is_served_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    with serving("refusing") as (url, bodies):
        assert serve(url, *SMALL, "--num-warmups", "0", "--model", "tiny") == 1
    assert len(bodies) == 6
    assert "refused with 404" in capsys.readouterr().out


def test_a_server_that_sends_garbage_or_nothing_is_one_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_answer_with, args=(listening, b"\x00\n\xff" * 1000))
        thread.start()
        assert serve(f"http://127.0.0.1:{listening.getsockname()[1]}", *SMALL) == 2
        thread.join()
    error = capsys.readouterr().err
    assert "no answer from" in error
    assert error.count("\n") == 1
    assert len(error) < 400


def _answer_with(listening: socket.socket, data: bytes) -> None:
    connection, _ = listening.accept()
    with connection:
        connection.recv(1 << 16)
        connection.sendall(data)


def test_a_recording_is_asked_again_and_simulated_beside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, times, report = (tmp_path / name for name in ("recording.jsonl", "times", "r.json"))
    recorded = record_run(CONFIG, 12, [asked(n, 1500 * n) for n in range(40)])
    path.write_text("".join(f"{line}\n" for line in recorded.lines))
    write_model(STEP_MODEL, times)
    with serving() as (url, bodies):
        words = ["--recording", str(path), "--simulate-from", str(path), "--step-time", str(times)]
        words += ["--json", str(report), "--request-rate", "200", "--num-warmups", "0"]
        assert serve(url, *words) < 2
    capsys.readouterr()
    arrivals = [entry for entry in recorded.recording.entries if isinstance(entry, Arrival)]
    lengths = [arrival.num_prompt_tokens for arrival in arrivals]
    assert sorted(len(body["prompt"]) for body in bodies) == sorted(lengths)
    (point,) = json.loads(report.read_text())["points"]
    assert point["endings"] == {"served": 40}
    assert point["simulated"]["num_finished"] == 40
