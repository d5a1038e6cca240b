"""`headway simulate` and `headway sweep`: what they print, what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headway.cli.main import main
from headway.cli.simulation import SETTINGS, setup_of
from headway.flags import FlagError
from headway.flags.engine import ENGINE_FLAGS
from headway.simulator.inert import inert_knobs

WITNESS = Path(__file__).parents[1] / "lessons" / "workload001.json"
SMALL = ["--arrivals", "at-once", "--requests", "20", "--prompt-tokens", "100"]
SMALL += ["--output-tokens", "20", "--num-gpu-blocks-override", "64"]


@pytest.fixture(autouse=True)
def no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried must not depend on how fast the machine is."""
    monkeypatch.setitem(inert_knobs.__kwdefaults__, "seconds", 600.0)


def run(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(words) == 0
    return capsys.readouterr().out


@pytest.fixture
def lesson(tmp_path: Path) -> Path:
    """The article's requests as a file of our own lines."""
    witness = json.loads(WITNESS.read_text())
    pairs = zip(witness["prompt"], witness["output"], strict=True)
    lines = (
        json.dumps({"arrival_s": 0, "prompt_tokens": prompt, "output_tokens": output})
        for prompt, output in pairs
    )
    path = tmp_path / "lesson.jsonl"
    path.write_text("\n".join(lines))
    return path


def test_more_slots_than_blocks_hold_change_nothing(
    lesson: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The article's sweep of max_num_seqs: 256 and 512 are the same, bit for bit."""
    words = ["sweep", "--sweep", "max-num-seqs=1,64,256,512", "--trace", str(lesson)]
    words += ["Qwen3-8B", "--kv-cache-memory-bytes", "16GiB", "--max-model-len", "128K"]
    words += ["--no-enable-prefix-caching", "--no-scheduler-reserve-full-isl"]
    out = run(words, capsys)
    rows = [line.split() for line in out.splitlines()[1:5]]
    assert [row[0] for row in rows] == ["1", "64", "256", "512"]
    assert rows[2][1:] == rows[3][1:]
    assert rows[1][1:] != rows[2][1:]
    assert "max-num-seqs=256 and max-num-seqs=512 decide the same, step by step." in out
    assert "What binds there: KV blocks:" in out


def test_the_pool_is_the_articles() -> None:
    setup = setup_of(["Qwen3-8B", *SMALL[:-2], "--kv-cache-memory-bytes", "16GiB"])
    assert setup.num_blocks == 7281


def test_readouts_and_what_changes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(["simulate", *SMALL], capsys)
    for name in (
        "output tokens per second",
        "largest batch",
        "mean batch",
        "preemptions",
        "prompt tokens recomputed",
        "held cache that is live",
        "slot efficiency",
        "time in the queue",
        "time to first token (TTFT)",
        "between tokens (ITL)",
        "mean between tokens (TPOT)",
        "arrival to end (e2e)",
    ):
        assert name in out
    assert "What binds: KV blocks: 9 ran at once at most" in out
    assert "  max_num_seqs: 9, 512, 1024 and 2048 decide the same\n" in out
    changing = out.partition("What would change something: ")[2]
    assert "num_gpu_blocks_override" in changing


def test_no_inert_says_only_what_binds(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(["simulate", *SMALL, "--no-inert"], capsys)
    assert "What binds: KV blocks" in out
    assert "decide the same" not in out


def test_json_has_all_figures_and_settings(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = json.loads(run(["simulate", *SMALL, "--json", "-", "--seeds", "2"], capsys))
    assert [summary["num_requests"] for summary in told["summaries"]] == [20, 20]
    assert told["summaries"][0]["ttft_s"]["p99"] > 0
    settings = told["settings"]
    assert settings["scheduling_policy"] == "fcfs"
    assert settings["num_blocks"] == 64
    assert settings["workload"]["prompt_tokens"] == "100"
    assert {knob["knob"] for knob in told["inert"]["knobs"]} >= {"max_num_seqs", "kv_policy"}
    path = tmp_path / "points.json"
    run(["sweep", *SMALL, "--sweep", "max_num_seqs=2,4", "--json", str(path)], capsys)
    points = json.loads(path.read_text())
    assert [point["values"] for point in points] == [{"max-num-seqs": "2"}, {"max-num-seqs": "4"}]
    assert [point["settings"]["max_num_seqs"] for point in points] == [2, 4]


def test_a_figure_that_is_none_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    """An output of one token has no time between tokens."""
    words = ["simulate", *SMALL, "--output-tokens", "1", "--json", "-", "--no-inert"]
    told = json.loads(run(words, capsys))
    assert told["summaries"][0]["itl_s"]["mean"] is None


def test_seeds_give_a_mean_and_a_deviation(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "--rate", "20", "--requests", "30", "--prompt-tokens", "uniform:10-200"]
    words += ["--output-tokens", "20", "--seeds", "3", "--no-inert"]
    line = next(x for x in run(words, capsys).splitlines() if x.startswith("duration"))
    assert " ± " in line


def test_a_grid_and_a_workload_that_is_swept(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", *SMALL, "--sweep", "kv-policy=on-demand,reserve"]
    words += ["--sweep", "prompt-tokens=fixed:50;values:20,30", "--max-tokens", "2x"]
    out = run(words, capsys)
    assert out.count("\nreserve") == out.count("\non-demand") == 2
    assert "values:20,30" in out


def test_a_workload_file_is_changed_by_flags(tmp_path: Path) -> None:
    spec = {"arrivals": "at-once", "requests": 5, "prompt_tokens": 10, "output_tokens": 3}
    path = tmp_path / "workload.json"
    path.write_text(json.dumps(spec))
    words = ["--workload", str(path), "--rate", "7", "--requests", "6"]
    assert setup_of(words).facts["workload"] == {
        "requests": "6",
        "prompt_tokens": 10,
        "output_tokens": 3,
        "rate": "7",
    }


def test_plots_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    words = ["--plot", f"lanes:{tmp_path}/lanes.svg", "--plot", f"{tmp_path}/batch.svg"]
    run(["simulate", *SMALL, "--no-inert", *words], capsys)
    run(["sweep", *SMALL, "--sweep", "max-num-seqs=2,4", "--plot", f"{tmp_path}/s.svg"], capsys)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["batch.svg", "lanes.svg", "s.svg"]


SAMPLES = {
    "tenant_weights": "a=2",
    "max_model_len": "8k",
    "max_num_batched_tokens": "2K",
    "watermark": "0.05",
    "kv_risk": "0.02",
    "max_num_seqs": "3",
    "long_prefill_token_threshold": "7",
    "max_num_partial_prefills": "4",
    "target_itl_ms": "5.5",
    "block_size": "32",
    "kv_cache_memory_bytes": "1GiB",
    "num_gpu_blocks_override": "77",
}


@pytest.mark.parametrize("flag", ENGINE_FLAGS, ids=lambda flag: flag.names[0])
def test_every_engine_flag_is_obeyed_or_refused(flag) -> None:
    """None has no effect: the setup is another, or there is a sentence."""
    name = flag.names[0]
    words = ["--arrivals", "at-once", "--requests", "2"]
    words += ["--prompt-tokens", "100", "--output-tokens", "20"]
    if flag.field == "enable_chunked_prefill":
        words += ["--max-num-batched-tokens", "9000"]
    if flag.field in ("tenant_weights", "preemption_victim"):
        words += ["--scheduling-policy", "fair"]
    if flag.field == "ageing_tokens_per_s":
        words += ["--scheduling-policy", "sjf"]
    if flag.field == "kv_risk":
        words += ["--kv-policy", "predict"]
    plain = setup_of(words)
    sample = SAMPLES.get(flag.field) or (flag.allowed[-1] if flag.allowed else "1")
    given = [f"--no-{name[2:]}"] if flag.parse is None else [name, sample]
    if flag.field in ("model", "dtype", "quantization", "kv_cache_dtype"):
        given[1] = {"model": "Qwen3-8B", "dtype": "float32"}.get(flag.field, "int8")
    elif flag.field == "seed":
        given = ["--seed", "9", "--prompt-tokens", "uniform:1-900"]
    elif flag.field not in SETTINGS:
        with pytest.raises(FlagError, match=f"^{given[0]} changes nothing in a simulation"):
            setup_of([*words, *given])
        return
    other = setup_of([*words, *given])
    assert (other.config, other.num_blocks, other.model, other.facts) != (
        plain.config,
        plain.num_blocks,
        plain.model,
        plain.facts,
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "what is to be served?"),
        (["--rate", "x"], "--rate: a number is needed, got 'x'"),
        (["--prompt-tokens", "lognormal:9"], "--prompt-tokens: 'lognormal:9'"),
        (["--requests", "0"], "--requests is at least 1, got 0"),
        (["--workload", "none.json"], "--workload none.json cannot be read"),
        (["--trace", "none.jsonl"], "none.jsonl: cannot be read"),
        (["--format", "azure"], "--format is the format of a --trace"),
        (["--first", "3"], "--first is for a --trace"),
        (["--hardware", "tpu"], "no hardware is called 'tpu': choose h100-sxm"),
        (["--model-shape", "gpt-9"], "no model is known as 'gpt-9'"),
        (["gpt-9"], "no model is known as 'gpt-9'"),
        (["Llama-3-70B"], "the weights of Llama-3-70B take 131.4 GiB of each device"),
        (["--tensor-parallel-size", "3"], "32 attention heads cannot be divided among 3"),
        (["--tensor-parallel-size", "0"], "--tensor-parallel-size must be at least 1, got 0"),
        (["--overhead-us", "inf"], "--overhead-us must be in [0, 1e+09], got 'inf'"),
        (["--kv-cache-memory-bytes", "1GiB"], "both size the KV cache: give one"),
        (
            ["--gpu-memory-utilization", "0.5"],
            "--gpu-memory-utilization changes nothing here, as --num-gpu-blocks-override sizes",
        ),
        (
            ["--dtype", "float32", "--quantization", "int8", "--kv-cache-dtype", "fp8"],
            "--dtype changes nothing here",
        ),
        (["--compute-efficiency", "3"], "--compute-efficiency must be in [1e-6, 1], got 3.0"),
        (["--compute-efficiency", "1e-300"], "--compute-efficiency must be in [1e-6, 1]"),
        (["--arrivals", "poisson:1e-300"], "arrivals lie more than 146 years after the start"),
        (
            ["--prompt-tokens", "9" * 20],
            "--prompt-tokens: fixed: lengths lie between 1 and 16777216",
        ),
        (["--deadline-s", "1e300"], "1e+09 seconds, got 1e+300"),
        (["--gpu-memory-utilization", "2"], "--gpu-memory-utilization must be in (0, 1]"),
        (["--quantization", "gguf"], "--quantization must be one of fp8, int8, int4"),
        (["--step-time", "none.json"], "none.json cannot be read"),
        (["--max-num-seqs", "0"], "--max-num-seqs must be an integer of at least 1"),
        (["--kv-policy", "none"], "--kv-policy must be on-demand, reserve or predict"),
        (["--kv-cache-memory-bytes", "1k"], "1024 bytes of KV cache: that is no block at all"),
        (["--num-gpu-blocks-override", "0"], "that is no block at all"),
        (["--num-gpu-blocks-override", "2"], "all 20 requests are refused; of the first: needs 7"),
        (
            ["--arrivals", "closed:2", "--duration-s", "5", "--prompt-tokens", "10000"],
            "all 2000 requests are refused; of the first: the prompt has 10000",
        ),
        (["--max-model-len", "50"], "all 20 requests are refused; of the first: the prompt has"),
        (["--max-num-batched-tokens", "50", "--no-enable-chunked-prefill"], "without chunked"),
        (["--port", "80"], "--port is for headway serve: leave it out"),
        (["--enable-lora"], "--enable-lora is refused: adapters"),
        (["--hardwar"], "there is no flag --hardwar"),
        (["--seeds", "0"], "--seeds must be a whole number in [1, 1000]"),
        (["--json", "/nonexistent/x"], "--json /nonexistent/x cannot be written"),
        (["--json", "/"], "--json / cannot be written: Is a directory"),
        (["--plot", "/nonexistent/x.png"], "--plot /nonexistent/x.png cannot be written: No such"),
        (["--plot", "x.txt"], "--plot takes a file that ends in .png or .svg"),
        (["--plot", "latency:x.png"], "--plot latency is of a sweep"),
        (["--sweep", "max-num-seqs"], "--sweep takes FLAG=A,B,..."),
        (["--sweep", "max-num-seqs=1,1"], "--sweep max-num-seqs has a value twice"),
        (["--sweep", "seeds=1,2"], "--seeds changes nothing about a run"),
        (["--sweep", "max-num-seqs=1,x"], "--max-num-seqs must be a whole number, got 'x'"),
        (["--sweep", "max-num=1,2"], "there is no flag --max-num"),
    ],
)
def test_what_cannot_be_simulated_is_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    base = SMALL if words else []
    if words[:1] in (["--workload"], ["--trace"]):
        base = []
    if words[:1] in (["Llama-3-70B"], ["--kv-cache-memory-bytes"], ["--tensor-parallel-size"]):
        base = SMALL if "1GiB" in words else SMALL[:-2]
    if "--duration-s" in words:
        base = ["--output-tokens", "10"]
    assert main(["simulate", *base, *words, "--no-inert"]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("headway simulate: ")
    assert sentence in said.err
    assert said.err.count("\n") == 1
    assert said.out.count("\n") == 0 or "--json" in words


def test_sweep_needs_a_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sweep", *SMALL]) == 2
    assert "--sweep says what is swept" in capsys.readouterr().err


def test_a_malformed_line_of_a_trace_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.jsonl"
    good = '{"arrival_s": 0, "prompt_tokens": 5, "output_tokens": 5}\n'
    path.write_text(good + good.replace("5}", "-1}"))
    assert main(["simulate", "--trace", str(path)]) == 2
    said = capsys.readouterr()
    assert said.err.startswith(f"headway simulate: {path}:2: ")
    assert said.out == ""


def test_help_lists_what_is_taken(capsys: pytest.CaptureFixture[str]) -> None:
    out = run(["simulate", "--help"], capsys)
    for name in ("--sweep", "--step-time", "--rate", "--kv-policy", "--no-inert"):
        assert f"  {name}" in out
    assert "--port" not in out


def test_what_cannot_be_written_is_told_before_the_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("headway.simulator.config.Setup.run", lambda *_: pytest.fail("it ran"))
    for words in (["--json", "/nonexistent/x"], ["--plot", "/nonexistent/x.png"]):
        assert main(["simulate", *SMALL, *words]) == 2
        assert "cannot be written" in capsys.readouterr().err
