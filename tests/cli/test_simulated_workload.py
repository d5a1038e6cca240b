"""The workload of a command line: what flags and seeds reach, and what is told of a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headway.cli.main import main
from headway.cli.simulation import setup_of
from headway.flags import FlagError
from headway.simulator.workload.synthetic import Streams, Synthetic


def run(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


def test_flags_and_seeds_change_each_stream(tmp_path: Path) -> None:
    part = {"rate": 2, "requests": 5, "prompt_tokens": 10, "output_tokens": 3}
    path = tmp_path / "workload.json"
    path.write_text(json.dumps({"streams": [part, {**part, "seed": 7}]}))
    setup = setup_of(["--workload", str(path), "--requests", "6"], 3)
    assert isinstance(setup.workload, Streams)
    assert [(p.num_requests, p.seed) for p in setup.workload.parts] == [(6, 3), (6, 10)]


def test_seeds_repeat_conversations_but_no_trace(tmp_path: Path) -> None:
    turns = [{"from": "human", "value": "a b"}, {"from": "gpt", "value": "c"}]
    path = tmp_path / "shared.json"
    path.write_text(json.dumps([{"id": "1", "conversations": turns}]))
    words = ["--trace", str(path), "--rate", "2"]
    workload = setup_of(words, 1).workload
    assert isinstance(workload, Synthetic)
    assert workload.seed == 1
    timed = tmp_path / "timed.jsonl"
    timed.write_text('{"arrival_s": 0, "prompt_tokens": 5, "output_tokens": 5}')
    with pytest.raises(FlagError, match="--seeds repeats what is drawn, and a trace is the same"):
        setup_of(["--trace", str(timed)], 1)
    with pytest.raises(FlagError, match=r"^--seed: .* has its own times and lengths"):
        setup_of(["--trace", str(timed), "--seed", "4"])


def test_what_is_left_out_of_a_trace_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "azure.csv"
    head = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    rows = ("2023-11-16 18:00:02.5,30,4", "2023-11-16 18:00:01.5,20,3", "2023-11-16 18:00:03,10,0")
    path.write_text(head + "\n".join(rows) + "\n")
    notes = [
        "1 of 3 rows have no prompt or no output and are left out",
        "the rows were not in order of arrival and have been sorted",
    ]
    told = "".join(f"Of the workload: {note}.\n" for note in notes)
    words = ["--trace", str(path)]
    assert run(["simulate", *words, "--no-inert"], capsys).partition("\n")[2].startswith(told)
    swept = run(["sweep", *words, "--sweep", "max-num-seqs=1,2"], capsys)
    assert swept.startswith(f"{told}\n")
    as_json = json.loads(run(["simulate", *words, "--no-inert", "--json", "-"], capsys))
    assert as_json["settings"]["notes"] == notes
