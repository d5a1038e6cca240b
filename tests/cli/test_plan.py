"""`headway plan`: what it prints, what it refuses."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from headway.cli.main import main
from headway.cli.parsing import parse_flags
from headway.engine.config import EngineConfig
from headway.simulator.step_time.files import write_model
from headway.simulator.step_time.hardware import hardware_named
from headway.simulator.step_time.models import shape_named
from headway.simulator.step_time.roofline import roofline
from tests.model.tiny import BASE
from tests.model.tiny_gguf import make_tiny_gguf

LENGTHS = ["--prompt-tokens", "lognormal:1000:0.8:32-8192"]
LENGTHS += ["--output-tokens", "lognormal:250:0.8:8-2048"]
SHORT = ["--prompt-tokens", "20", "--output-tokens", "10"]
EQUAL = ["--prompt-tokens", "500", "--output-tokens", "100"]
H100 = ["--hardware", "h100", *LENGTHS]
CONFIG = {
    "model_type": "qwen3",
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 12288,
    "max_position_embeddings": 40960,
    "num_attention_heads": 32,
    "num_hidden_layers": 36,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
}


def told(words: list[str], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main(["plan", *words, "--json", "-"]) == 0
    return json.loads(capsys.readouterr().out)


def printed(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["plan", *words]) == 0
    return capsys.readouterr().out


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["plan", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("headway plan: ")
    assert err.count("\n") == 1
    return err


def test_p11_every_factor_of_the_kv_cache_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Qwen3-8B and 16 GiB: 147,456 bytes a token, 7,281 blocks, 116,496 tokens."""
    out = " ".join(printed(["Qwen3-8B", *H100, "--kv-cache-memory-bytes", "16GiB"], capsys).split())
    assert (
        "2 keys and values x 36 layers x 8 kv heads x 128 head dim x 2 bytes = 147,456 bytes "
        "(144 KiB)"
    ) in out
    assert (
        "17,179,869,184 bytes / 2,359,296 a block of 16 tokens = 7,281 blocks = 116,496 tokens"
    ) in out


def test_p69_qwen2_5_7b_has_four_kv_heads(capsys: pytest.CaptureFixture[str]) -> None:
    """Hidden size in their place would be seven times as much."""
    plan = told(["Qwen/Qwen2.5-7B-Instruct", *H100], capsys)
    assert plan["kv_cache"]["factors"]["kv heads"] == 4
    assert plan["kv_cache"]["bytes_per_token"] == 2 * 28 * 4 * 128 * 2


def test_p69_policies_are_told_apart_by_their_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["Qwen2.5-7B", "--hardware", "l4", *LENGTHS]
    undeclared, declared = (
        told([*words, *more], capsys)["residents"] for more in ([], ["--max-tokens", "1x"])
    )
    for residents in (undeclared, declared):
        assert residents["reserve"]["mean"] < residents["predict"]["mean"]
        assert residents["predict"]["mean"] < residents["on-demand"]["mean"]
        assert residents["on-demand"]["p05"] < residents["on-demand"]["mean"]
    assert undeclared["on-demand"] == declared["on-demand"]
    assert undeclared["reserve"]["mean"] < declared["reserve"]["mean"] / 5
    out = printed(words, capsys)
    assert "on-demand never reads max_tokens" in out
    assert "reserve holds room for all of max_model_len" in out


@pytest.mark.parametrize("gib", [2, 4, 24])
def test_p10_flags_fit_the_memory_that_they_are_for(
    gib: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cap comes from the pool, and logits of every slot are in the sum."""
    words = ["SmolLM2-135M", "--memory-gib", str(gib), "--bandwidth-gbs", "300", "--tflops", "100"]
    plan = told([*words, *LENGTHS], capsys)
    memory, pool = plan["memory"], plan["kv_cache"]["pool_bytes"]
    assert memory["weights"] + memory["activations"] + memory["fixed"] + pool <= 0.92 * gib * 2**30
    assert memory["activations"] > 256 * 49152 * 6
    line = shlex.split(plan["launch"][0]["line"])
    cap = int(line[line.index("--max-num-seqs") + 1])
    assert cap <= -(-plan["residents"]["on-demand"]["p95"] // 1)
    assert cap <= memory["num_samples"] == 256


def test_p10_where_nothing_is_left_the_numbers_say_why(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["SmolLM2-135M", "--memory-gib", "1", "--bandwidth-gbs", "300", "--tflops", "100"]
    said = refused(words, capsys)
    assert "of the 0.92 GiB that may be used on each device weights take 0.25 GiB" in said
    assert "lower --max-num-seqs" in said


@pytest.mark.parametrize(
    "words",
    [
        ["Qwen3-8B", *H100],
        ["Qwen3-8B", *H100, "--kv-policy", "predict", "--quantization", "int8"],
        ["Qwen3-8B", *H100, "--block-size", "32", "--max-num-seqs", "40"],
        ["--hardware", "cpu", *LENGTHS, "--kv-cache-dtype", "int8", "--max-model-len", "4096"],
        ["--hardware", "cpu", *LENGTHS, "--kv-policy", "reserve", "--quantization", "int4"],
        ["--hardware", "cpu", *LENGTHS, "--dtype", "float32", "--kv-cache-memory-bytes", "512MiB"],
    ],
)
def test_the_line_is_one_that_headway_takes(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    plan = told(words, capsys)
    line = shlex.split(plan["launch"][-1]["line"])
    assert line[:2] == ["headway", "serve"]
    flags = parse_flags(line[2:])
    config = EngineConfig(**flags.engine)
    assert not flags.server
    assert not flags.warnings
    assert config.kv_cache_memory_bytes == plan["kv_cache"]["pool_bytes"]
    assert config.block_size == plan["kv_cache"]["block_size"]
    assert {word for word in line if word.startswith("--")} == {*plan["launch"][-1]["why"]}


def test_a_line_for_vllm_is_there_on_a_gpu_only(capsys: pytest.CaptureFixture[str]) -> None:
    on_gpu = told(["Qwen3-8B", *H100, "--tensor-parallel-size", "2"], capsys)["launch"]
    assert on_gpu[0]["line"].startswith(
        "vllm serve Qwen/Qwen3-8B --tensor-parallel-size 2 --max-model-len 40960 "
        "--gpu-memory-utilization 0.92 --max-num-seqs "
    )
    assert "vllm" not in json.dumps(told(["--hardware", "cpu", *LENGTHS], capsys)["launch"])


def test_a_config_json_and_its_directory_are_the_named_model(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    named = told(["Qwen3-8B", *H100], capsys)
    for path in (tmp_path, tmp_path / "config.json"):
        plan = told([str(path), *H100], capsys)
        assert plan["kv_cache"] == named["kv_cache"]
        assert plan["requests_per_second"] == named["requests_per_second"]


def test_a_gguf_file_says_its_shape(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make_tiny_gguf(tmp_path / "tiny.gguf", "llama", {})
    plan = told([str(path), "--hardware", "cpu", *SHORT], capsys)
    assert plan["kv_cache"]["factors"]["layers"] == BASE["num_hidden_layers"]
    assert plan["kv_cache"]["factors"]["kv heads"] == BASE["num_key_value_heads"]
    assert plan["limits"]["max_model_len"] == BASE["max_position_embeddings"]


def test_measured_step_times_take_the_place_of_a_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "step-time.json"
    write_model(roofline(shape_named("Qwen3-8B"), hardware_named("h100")), path)
    pool = ["--kv-cache-memory-bytes", "16GiB", *LENGTHS, "--max-num-batched-tokens", "8192"]
    measured = told(["Qwen3-8B", "--step-time", str(path), *pool], capsys)
    counted = told(["Qwen3-8B", "--hardware", "h100", *pool], capsys)
    assert measured["step_times"] == counted["step_times"]
    assert measured["requests_per_second"] == counted["requests_per_second"]


def test_lengths_of_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [{"arrival_s": n / 2, "prompt_tokens": 900 + n, "output_tokens": 50} for n in range(99)]
    path = tmp_path / "trace.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    plan = told(["Qwen3-8B", "--hardware", "h100", "--trace", str(path)], capsys)
    assert plan["lengths"]["prompt_tokens"]["mean"] == pytest.approx(949)
    assert plan["at_rate"]["requests_per_second"] == pytest.approx(2.0)


def test_little_s_law_at_a_rate_and_beyond(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["Llama-3-8B", *H100]
    plan = told([*words, "--rate", "10"], capsys)
    load = plan["at_rate"]
    assert not plan["is_overloaded"]
    assert plan["decodes_at_rate"] < load["batch"] < plan["residents"]["on-demand"]["mean"]
    mean_decodes = plan["cost"]["num_decodes"]
    assert load["batch"] == pytest.approx(10 * mean_decodes * load["step_s"])
    most = plan["requests_per_second"]
    over = [*words, "--rate", str(1.01 * most)]
    assert told(over, capsys)["is_overloaded"]
    out = " ".join(printed(over, capsys).split())
    assert "is overloaded: Little's law has no solution up to a batch of" in out
    assert "It takes 1.01 such machines" in out


def test_an_output_of_one_token_has_no_pace(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["Qwen3-8B", "--hardware", "h100", "--prompt-tokens", "99", "--output-tokens", "1"]
    plan = told(words, capsys)
    assert plan["cost"]["num_decodes"] == 0
    assert {load["step_s"] for load in plan["loads"]} == {None}
    assert plan["loads"][-1]["tokens_per_second"] == pytest.approx(plan["requests_per_second"])


def test_a_prompt_that_finds_no_room_beside_decodes_has_steps_of_its_own(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["Qwen3-8B", "--hardware", "h100", "--prompt-tokens", "100", "--output-tokens", "10"]
    plan = told([*words, "--max-num-batched-tokens", "1"], capsys)
    assert plan["cost"]["prefill_s"] > 99 * plan["step_times"][0]["step_s"] * 0.9


def test_a_price_is_of_a_million_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    plan = told(["Qwen3-8B", *H100, "--price-per-hour", "3.6"], capsys)
    assert plan["cost_per_million"] == pytest.approx(1e3 / plan["tokens_per_second"])
    assert "price of 1M" in printed(["Qwen3-8B", *H100, "--price-per-hour", "3"], capsys)


def test_half_the_bytes_are_twice_the_blocks(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["Qwen3-8B", *H100, "--kv-cache-memory-bytes", "16GiB", "--kv-cache-dtype"]
    wide, narrow = (told([*words, kind], capsys)["kv_cache"] for kind in ("bfloat16", "fp8"))
    assert (wide["num_blocks"], narrow["num_blocks"]) == (7281, 14563)


def test_devices_share_weights_and_cache(capsys: pytest.CaptureFixture[str]) -> None:
    one, four = (
        told(["Llama-3.1-8B", *H100, "--tensor-parallel-size", count], capsys)
        for count in ("1", "4")
    )
    assert four["memory"]["weights"] == one["memory"]["weights"] // 4
    assert four["kv_cache"]["num_tokens"] > 4 * one["kv_cache"]["num_tokens"]


def test_an_assumption_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed(["Qwen3-8B", "--hardware", "h100"], capsys)
    assert "no --prompt-tokens is given: lognormal:1000:0.8:32-8192 is assumed" in out
    assert "assumed" not in printed(["Qwen3-8B", *H100], capsys).partition("# Memory")[0]


def test_one_request_of_the_model_s_length_may_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["Llama-3.1-8B", "--hardware", "l4", *LENGTHS]
    out = " ".join(printed(words, capsys).split())
    assert "one request of max_model_len does not fit: its 131,072 tokens need 8,192 blocks" in out
    line = shlex.split(told(words, capsys)["launch"][0]["line"])
    tokens = told(words, capsys)["kv_cache"]["num_tokens"]
    assert int(line[line.index("--max-model-len") + 1]) == tokens < 131_072


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["Qwen3-8B"], "on what? Give --hardware"),
        (["Qwen3-8", *H100], "did you mean Qwen3-8B?"),
        (["Qwen3-8B", "--hardware", "h10"], "did you mean h100?"),
        (["no-such-dir/config.json", *H100], "no model is known as"),
        (["Llama-3-70B", *H100], "nothing is left for a KV cache"),
        (["Qwen3-8B", *H100, "--kv-cache-memory-bytes", "1MiB"], "hold no block of 16 tokens"),
        (["Qwen3-8B", *H100, "--kv-cache-memory-bytes", "70GiB"], "of 70.0 GiB does not fit: h100"),
        (["Qwen3-8B", *H100, "--num-gpu-blocks-override", "9" * 15], "GiB does not fit"),
        (
            ["Qwen3-8B", "--hardware", "h100", *EQUAL, "--num-gpu-blocks-override", "20"],
            "no request fits: the shortest has 500 prompt tokens and 100 of output, the KV cache "
            "holds 320 tokens",
        ),
        (["Qwen3-8B", *H100, "--rate", "0"], "a rate is above 0"),
        (["Qwen3-8B", *H100, "--rate", "many"], "a number is needed"),
        (
            ["Qwen3-8B", *H100, "--price-per-hour", "-1"],
            "--price-per-hour must be a number above 0",
        ),
        (["Qwen3-8B", *H100, "--price-per-hour", "nan"], "--price-per-hour must be a number"),
        (["Qwen3-8B", *H100, "--max-model-len", "100000"], "more than the 40,960 tokens"),
        (["Qwen3-8B", *H100, "--scheduling-policy", "sjf"], "changes nothing in a plan"),
        (["Qwen3-8B", *H100, "--port", "8000"], "--port is for headway serve"),
        (["Qwen3-8B", *H100, "--no-such-flag"], "there is no flag --no-such-flag"),
        (["Qwen3-8B", *H100, "--prompt-tokens", "gauss:3"], "gauss"),
        (["Qwen3-8B", "--memory-gib", "0", "--bandwidth-gbs", "1", "--tflops", "1"], "above 0"),
        (["Qwen3-8B", "--memory-gib", "80"], "on what?"),
        (["Qwen3-8B", *H100, "--tensor-parallel-size", "3"], "cannot be divided among 3"),
        (["Qwen3-8B", *H100, "--calibration-seconds", "5"], "for --hardware this-machine"),
        (
            ["Qwen3-8B", *H100, "--kv-policy", "reserve", "--num-gpu-blocks-override", "300"],
            "nobody",
        ),
        (["Qwen3-8B", "--hardware", "h100", "--trace", "no-such.jsonl"], "no-such.jsonl"),
        (["Qwen3-8B", "--step-time", "no-such.json"], "cannot be read"),
        (["x.gguf", *H100], "x.gguf"),
    ],
)
def test_what_cannot_be_planned_is_one_sentence(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sentence in refused(words, capsys)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("{}", "num_attention_heads is missing"),
        ("[1, 2]", "must hold a JSON object"),
        ("not json", "is not valid JSON"),
        ("[" * 100_000, "is not valid JSON"),
        (
            json.dumps({**CONFIG, "num_key_value_heads": None, "hidden_size": -1}),
            "hidden_size must",
        ),
        (json.dumps({**CONFIG, "kv_lora_rank": 512}), "kv_lora_rank means"),
        (json.dumps({**CONFIG, "max_position_embeddings": "long"}), "max_position_embeddings must"),
        (json.dumps({**CONFIG, "num_hidden_layers": 10**11, "head_dim": 10**11}), "GiB"),
    ],
)
def test_a_broken_config_is_one_sentence(
    content: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(content)
    assert sentence in refused([str(tmp_path), *H100], capsys)


def test_a_broken_gguf_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "broken.gguf"
    path.write_bytes(b"GGUF" + bytes(40))
    assert "broken.gguf" in refused([str(path), *H100], capsys)


@pytest.mark.parametrize("columns", [80, 160])
def test_lines_end_where_the_terminal_does(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    out = printed(["Qwen3-8B", *H100, "--rate", "99", "--price-per-hour", "3"], capsys)
    assert max(map(len, out.splitlines())) <= columns


def test_help_lists_what_is_read(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--help"]) == 0
    out = capsys.readouterr().out
    for flag in ("--price-per-hour", "--hardware", "--prompt-tokens", "--kv-policy", "--json"):
        assert f"  {flag}" in out
