"""`headway replay`: the same decisions, or what other settings would have done."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headway.cli.main import main
from headway.replay import traffic
from headway.simulator.step_time.files import write_model
from headway.simulator.step_time.roofline import RooflineModel
from tests.replay.recorded_run import record_run
from tests.replay.test_measured import CONFIG, asked

STEP_MODEL = RooflineModel(
    weight_bytes=1.0, flops_per_token=1.0, bytes_per_second=1e6, flops_per_second=1e9
)  # a microsecond for the weights, as the toy


@pytest.fixture
def lines() -> list[str]:
    return record_run(CONFIG, 12, [asked(n, 1500 * n) for n in range(40)]).lines


@pytest.fixture
def recorded(tmp_path: Path, lines: list[str]) -> Path:
    path = tmp_path / "run.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def run(words: list[str], capsys: pytest.CaptureFixture[str], code: int = 0) -> str:
    assert main(["replay", *words]) == code
    return capsys.readouterr().out


def test_the_same_decisions(recorded: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run([str(recorded)], capsys)
    num_steps = sum('"kind":"step"' in line for line in recorded.read_text().splitlines())
    assert out == f"decisions identical: yes, {num_steps:,} steps\n"
    told = json.loads(run([str(recorded), "--json", "-"], capsys))
    assert told == [{"identical": True, "num_steps": num_steps, "difference": None}]


def test_each_recording_of_a_file(
    recorded: Path, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    recorded.write_text("".join(f"{line}\n" for line in (*lines, *lines)))
    out = run([str(recorded)], capsys)
    assert [line.partition(":")[0] for line in out.splitlines()] == ["recording 1", "recording 2"]
    assert run([str(recorded), "--recording", "2"], capsys).startswith("decisions identical: yes")


def test_another_decision_is_told_and_the_exit_code_says_so(
    recorded: Path, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    header = json.loads(lines[0])
    header["scheduler"]["max_num_seqs"] = 2
    recorded.write_text("".join(f"{line}\n" for line in (json.dumps(header), *lines[1:])))
    out = run([str(recorded)], capsys, code=1)
    assert out.startswith("decisions identical: no, step ")
    assert main(["replay", str(recorded), "--max-num-seqs", "3"]) == 2
    assert "these decisions are not this scheduler's" in capsys.readouterr().err


def test_what_would_have_been_is_written_down(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_model(STEP_MODEL, tmp_path / "model.json")
    run_path = tmp_path / "changed.jsonl"
    words = [str(recorded), "--step-time", str(tmp_path / "model.json"), "--max-num-seqs", "2"]
    run([*words, "--record", str(run_path)], capsys)
    assert run([str(run_path)], capsys).startswith("decisions identical: yes")
    headers = [json.loads(p.read_text().partition("\n")[0]) for p in (recorded, run_path)]
    assert headers[0]["model"] == headers[1]["model"]
    assert headers[1]["scheduler"]["max_num_seqs"] == 2
    assert main(["explain", "--recording", str(run_path), "--slowest", "1"]) == 0
    assert "queue: slots" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--record", "x.jsonl"], "--record is of a simulated run"),
        (["--what-if", "--record", "run.jsonl"], "which is replayed: give another file"),
        (["--what-if", "--record", "no/where"], "cannot be written"),
    ],
)
def test_what_is_not_written_down(
    recorded: Path,
    more: list[str],
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(recorded.parent)
    assert main(["replay", str(recorded), *more]) == 2
    assert sentence in capsys.readouterr().err


def test_what_if(recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "model.json"
    write_model(STEP_MODEL, model)
    words = [str(recorded), "--step-time", str(model)]
    out = run([*words, "--num-gpu-blocks-override", "60", "--json", str(tmp_path / "x")], capsys)
    header = next(line for line in out.splitlines() if "as recorded" in line)
    assert header.split("  ")[-3:] == ["as recorded", "same settings", "with the changes"]
    row = next(line for line in out.splitlines() if line.startswith("preemptions"))
    was, same, changed = (int(cell.replace(",", "")) for cell in row.split()[1:])
    assert was > 0
    assert same > 0
    assert changed == 0
    told = json.loads((tmp_path / "x").read_text())
    assert told["with the changes"]["settings"]["num_blocks"] == 60
    assert told["same settings"]["settings"]["num_blocks"] == 12
    assert told["as recorded"]["summary"]["num_preemptions"] == was
    assert "with the changes" not in run([*words, "--what-if"], capsys)
    assert not {"refused", "failed", "unfinished"} & {
        line.split("  ")[0] for line in out.splitlines()
    }


def test_step_times_come_from_the_recording(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = run([str(recorded), "--what-if"], capsys)
    assert out.startswith("step times fitted to ")
    rows = {line[:30].strip(): line.split()[-2:] for line in out.splitlines() if "  " in line}
    assert rows["steps"][0] == rows["steps"][1]


def test_the_pool_by_bytes_needs_to_know_how_many_a_token_takes(
    recorded: Path, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["replay", str(recorded), "--kv-cache-memory-bytes", "1000"]
    assert main(words) == 2
    assert "does not say how many bytes a token takes" in capsys.readouterr().err
    header = {**json.loads(lines[0]), "model": {"kv_bytes_per_token": 10}}
    recorded.write_text("".join(f"{line}\n" for line in (json.dumps(header), *lines[1:])))
    told = json.loads(run([*words[1:], "--json", "-"], capsys))
    assert told["with the changes"]["settings"]["num_blocks"] == 25


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--recording", "2"], "--recording must be in [1, 1]"),
        (["--block-size", "6"], "block_size=6 cannot be replayed"),
        (["--port", "80"], "--port is for headway serve"),
        (["--num-threads", "8"], "--num-threads changes nothing in a simulation"),
        (["--kv-policy", "x"], "--kv-policy must be on-demand, reserve or predict"),
        (["--kv-risk", "0.3"], "--kv-risk is for --kv-policy=predict, which is 'on-demand'"),
        (["--step-time", "none.json"], "none.json cannot be read"),
        (["--num-gpu-blocks-override", "0"], "a KV cache of less than one block"),
        (["--num-gpu-blocks-override", "1"], "with the changes, all "),
        (["--json", "/nonexistent/x"], "--json /nonexistent/x cannot be written"),
    ],
)
def test_what_cannot_be_replayed_is_one_sentence(
    recorded: Path, words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", str(recorded), *words]) == 2
    said = capsys.readouterr()
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert said.out == ""


def test_a_file_that_is_none_and_a_newer_version(
    recorded: Path, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay"]) == 2
    assert "which recording?" in capsys.readouterr().err
    assert main(["replay", "/nonexistent"]) == 2
    assert "/nonexistent: cannot be read" in capsys.readouterr().err
    header = {**json.loads(lines[0]), "version": 99}
    recorded.write_text(json.dumps(header) + "\n")
    assert main(["replay", str(recorded)]) == 2
    assert "line 1: a recording of version 99" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [[], ["--what-if"]])
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"num_blocks": 2_000_000_000}, "a pool of 2,000,000,000 KV blocks cannot be simulated"),
        ({"scheduler": {}}, "scheduler.block_size is missing"),
        ({"scheduler": {"block_size": 4, "x": 1}}, "scheduler.x is no setting of this scheduler"),
        ({"scheduler": {"block_size": "4"}}, "scheduler.block_size must be of type int, got '4'"),
        ({"scheduler": {"block_size": 0}}, "block_size must be an integer of at least 1, got 0"),
    ],
)
def test_a_header_that_sets_up_no_scheduler_is_told_by_its_field(
    recorded: Path,
    lines: list[str],
    flags: list[str],
    changes: dict[str, object],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    header = {**json.loads(lines[0]), **changes}
    recorded.write_text("".join(f"{line}\n" for line in (json.dumps(header), *lines[1:])))
    assert main(["replay", str(recorded), *flags]) == 2
    assert f"headway replay: the recording's header: {sentence}" in capsys.readouterr().err


def test_too_few_steps_to_fit_to(
    recorded: Path, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    recorded.write_text("".join(f"{line}\n" for line in lines[: len(lines) // 4]))
    assert main(["replay", str(recorded), "--what-if"]) == 2
    assert (
        "too few for a fit, which takes 40: measure for longer, or give --step-time"
        in capsys.readouterr().err
    )


def test_several_recordings_have_no_one_traffic(
    recorded: Path, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    recorded.write_text("".join(f"{line}\n" for line in (*lines, *lines)))
    assert main(["replay", str(recorded), "--what-if"]) == 2
    assert "choose with --recording 1 to 2" in capsys.readouterr().err


def test_sequences_that_were_cut_off_are_told(
    recorded: Path, lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    recorded.write_text("".join(f"{line}\n" for line in lines[: 3 * len(lines) // 4]))
    out = run([str(recorded), "--what-if"], capsys)
    assert "were cut off by the end" in out
    [open_here, none_here] = next(
        line.split()[1:] for line in out.splitlines() if line.startswith("unfinished")
    )
    assert int(open_here) > int(none_here) == 0


def test_a_recording_is_made_into_a_workload_once(
    recorded: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[int | None] = []

    class Counted(traffic.RecordedTraffic):
        def __init__(self, header, entries, *, block_size=None) -> None:
            made.append(block_size)
            super().__init__(header, entries, block_size=block_size)

    monkeypatch.setattr(traffic, "RecordedTraffic", Counted)
    told = json.loads(run([str(recorded), "--block-size", "8", "--json", "-"], capsys))
    assert made == [8]
    assert told["with the changes"]["settings"]["block_size"] == 8
    assert told["same settings"]["settings"]["block_size"] == 4
    summaries = [told[name]["summary"] for name in ("as recorded", "same settings")]
    assert summaries[0]["num_finished"] == summaries[1]["num_finished"] == 40
