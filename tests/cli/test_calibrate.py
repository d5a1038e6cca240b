"""`headway calibrate`: on a tiny engine, from a recording, and what it refuses."""

from __future__ import annotations

import gzip
import json

import numpy as np
import pytest

from headway.cli.calibrate import main
from headway.cli.calibration import NoInbox, Rig, measure
from headway.core.request import Request, SamplingParams
from headway.core.step import Step, StepResult
from headway.drive.clock import VirtualClock
from headway.drive.ports import Command, Submit
from headway.engine.build import build_engine
from headway.engine.config import EngineConfig
from headway.simulator.step_time.base import StepShape
from headway.simulator.step_time.files import read_model
from tests.model.tiny import make_tiny_llama


class TwoRequests(NoInbox):
    """An inbox with two requests of 60 tokens each."""

    def __init__(self) -> None:
        params = SamplingParams(max_tokens=60, temperature=0.0, ignore_eos=True)
        self._left: list[Command] = [
            Submit(Request(request_id=name, prompt_token_ids=(5,) * length, sampling=params))
            for name, length in (("a", 20), ("b", 30))
        ]

    def take(self) -> list[Command]:
        taken, self._left = self._left, []
        return taken


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiny")
    return make_tiny_llama(folder, max_position_embeddings=2048)


@pytest.fixture(scope="module")
def engine(tiny):
    config = EngineConfig(
        model=str(tiny), num_gpu_blocks_override=400, max_num_seqs=16, max_num_batched_tokens=64
    )
    return build_engine(config, NoInbox())


def test_the_load_has_steps_of_every_kind_within_the_limits(engine):
    seen = measure(engine, seconds=2.0, seed=3)
    shapes = [StepShape(*row) for row in seen.shapes.tolist()]
    assert len(shapes) > 100
    assert max(shape.num_tokens for shape in shapes) == 64
    assert any(s.num_prefills and not s.num_decode_tokens for s in shapes)
    assert any(s.num_prefills and s.num_decode_tokens for s in shapes)
    assert any(s.num_prefills and not s.num_samples for s in shapes)
    decodes = [s for s in shapes if not s.num_prefills]
    assert {s.num_decode_tokens for s in decodes} >= {1, 2, 4, 8, 16}
    contexts = [s.decode_attended / s.num_decode_tokens for s in decodes]
    assert max(contexts) > 10 * min(contexts)
    assert np.median(seen.durations_ns) < 100e6


def test_the_load_leaves_nothing_behind(engine):
    measure(engine, seconds=0.2)
    stats = engine.scheduler.stats()
    assert (stats.num_running, stats.num_waiting, stats.num_held_blocks) == (0, 0, 0)


@pytest.mark.parametrize("pool", [24, 40])
def test_a_small_pool_is_no_obstacle(tiny, pool):
    config = EngineConfig(
        model=str(tiny), num_gpu_blocks_override=pool, max_num_seqs=64, max_model_len=300
    )
    assert len(measure(build_engine(config, NoInbox()), seconds=0.5)) > 20


def test_what_happens_between_two_turns_is_in_no_step(tiny, monkeypatch):
    clock = VirtualClock()
    monkeypatch.setattr("headway.cli.calibration.RealClock", lambda: clock)
    config = EngineConfig(model=str(tiny), num_gpu_blocks_override=400, max_num_seqs=16)
    engine = build_engine(config, NoInbox())

    def five_ms(step: Step) -> StepResult:
        clock.advance(5_000_000)
        return StepResult([1 for c in step.chunks if c.samples])

    monkeypatch.setattr(engine.executor, "run", five_ms)
    rig = Rig(engine)
    rig.send(*TwoRequests().take())
    while rig.turn():
        clock.advance(1_000_000_000)
    assert [duration_ns for _, duration_ns in rig.steps] == [5_000_000] * 60
    assert rig.steps[0][0] == StepShape(34, 2, 210 + 14 * 16 + 105, 50, 0, 0, 2)  # 16 are cached


def test_a_failing_step_ends_the_measurement(tiny, monkeypatch):
    engine = build_engine(EngineConfig(model=str(tiny), num_gpu_blocks_override=50), NoInbox())

    def broken(step):
        raise RuntimeError("out of memory")

    monkeypatch.setattr(engine.executor, "run", broken)
    with pytest.raises(RuntimeError, match="out of memory"):
        measure(engine, seconds=0.2)


def test_it_writes_a_model_and_says_how_good_it_is(tiny, tmp_path, capsys):
    path = tmp_path / "model.json"
    assert main([str(tiny), "--seconds", "1", "-o", str(path), "--max-num-seqs=8"]) == 0
    model = read_model(path)
    assert model.step_ns(StepShape(num_decode_tokens=1, decode_attended=10, num_samples=1)) > 1000
    written = json.loads(path.read_text())["fitted_on"]
    assert written["num_threads"] >= 1
    assert written["machine"]
    assert written["temperature"] == 0
    out = capsys.readouterr().out
    assert "steps that the fit did not see: error" in out
    assert f"written to {path}" in out


def test_from_a_recording(tiny, tmp_path, capsys):
    recording, path = tmp_path / "day.jsonl", tmp_path / "model.json"
    config = EngineConfig(model=str(tiny), num_gpu_blocks_override=100, record=str(recording))
    engine = build_engine(config, TwoRequests())
    engine.loop.run()
    engine.recording.close()
    assert main(["--from", str(recording), "--output", str(path)]) == 0
    written = json.loads(path.read_text())
    assert written["fitted_on"]["recording"] == "day.jsonl"
    assert written["fitted_on"]["kv_cache_dtype"] == "bfloat16"
    assert written["seen"]["decodes"][1] == 2
    packed, again = tmp_path / "day.jsonl.gz", tmp_path / "again.json"
    packed.write_bytes(gzip.compress(recording.read_bytes()))
    assert main(["--from", str(packed), "--output", str(again)]) == 0
    assert json.loads(again.read_text())["terms"] == written["terms"]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (["--seconds", "0"], "--seconds must be a number in [1, 86400], got '0'"),
        (["--seconds", "soon"], "--seconds must be a number"),
        (["--seconds"], "--seconds needs a value"),
        (["--port", "80"], "--port is for headway serve: leave it out"),
        (["--from", "a.jsonl", "--max-num-seqs", "4"], "--from takes a recording"),
        (["--from", "a.jsonl", "--seconds", "4"], "leave --seconds out"),
        (["--from", "a.jsonl", "--seed", "4"], "leave --seed out"),
        (["--from", "a.jsonl", "--temperature", "1"], "leave --temperature out"),
        (["-o", "a", "--output", "b"], "the same flag"),
    ],
)
def test_what_makes_no_sense_is_refused(line, sentence, capsys):
    assert main(line) == 2
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "cannot be read: No such file"),
        ("", "there is no recording in it"),
        ("{}\n{}\n", "line 1: not a line of a recording"),
    ],
)
def test_a_recording_that_cannot_be_used(text, sentence, tmp_path, capsys):
    path = tmp_path / "r.jsonl"
    if text is not None:
        path.write_text(text)
    assert main(["--from", str(path), "-o", str(tmp_path / "m.json")]) == 2
    assert sentence in capsys.readouterr().err
    assert not (tmp_path / "m.json").exists()


def test_help(capsys):
    assert main(["--help"]) == 0
    assert "--from RECORDING" in capsys.readouterr().out
