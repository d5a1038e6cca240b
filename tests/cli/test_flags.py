"""The table of flags: every one parses, is refused with a sentence, and stands in the help."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from headway.cli.main import main
from headway.cli.parsing import flag_help, parse_flags
from headway.engine.config import EngineConfig
from headway.flags import FLAGS, FOREIGN, Flag, FlagError, Foreign
from headway.flags.values import parse_bytes, parse_size
from headway.server.config import ServerConfig

# A value that is not the default, for flags whose values are not listed in the table.
SAMPLES = {
    "max_model_len": ("8k", 8000),
    "max_num_batched_tokens": ("2K", 2048),
    "watermark": ("0.05", 0.05),
    "tenant_weights": ("a=2,b=1", "a=2,b=1"),
    "tenant_header": ("x-team", "x-team"),
    "kv_risk": ("0.02", 0.02),
    "block_size": ("32", 32),
    "kv_cache_memory_bytes": ("512MiB", 512 << 20),
    "served_model_name": ("mine", ("mine",)),
    "api_key": ("key", ("key",)),
    "chat_template": ("{{ messages }}", "{{ messages }}"),
    "max_body_bytes": ("1MiB", 1 << 20),
    "ssl_cert_reqs": ("0", 0),
    "root_path": ("/api", "/api"),
    "disable_access_log_for_endpoints": ("/health, /metrics", ("/health", "/metrics")),
    "custom_histogram_buckets": ('{"request_latency": [0.1, 2]}', {"request_latency": (0.1, 2.0)}),
}
# Fields that no flag sets: another flag implies them.
IMPLIED = {"trace_steps"}
# Flags that only work together with another.
COMPANIONS = {
    "tenant_weights": ["--scheduling-policy", "fair"],
    "kv_risk": ["--kv-policy", "predict"],
    "ageing_tokens_per_s": ["--scheduling-policy", "sjf"],
    "preemption_victim": ["--scheduling-policy", "fair"],
    "ssl_keyfile": ["--ssl-certfile", __file__],
    "ssl_certfile": ["--ssl-keyfile", __file__],
    "ssl_ca_certs": ["--ssl-keyfile", __file__, "--ssl-certfile", __file__],
    "ssl_ciphers": ["--ssl-keyfile", __file__, "--ssl-certfile", __file__],
    "fingerprint_value": ["--fingerprint-mode", "custom"],
}


def sample(flag: Flag) -> tuple[str, object]:
    if flag.allowed:
        chosen = "hash" if flag.field == "fingerprint_mode" else flag.allowed[-1]
        assert flag.parse is not None
        return chosen, flag.parse(chosen)
    if flag.field in SAMPLES:
        return SAMPLES[flag.field]
    if flag.metavar == "FILE" and flag.parse is not str:
        return __file__, Path(__file__)
    if flag.is_object:
        return '{"a": {"b": 1}}', {"a": {"b": 1}}
    if flag.repeats:
        return "word", ("word",)
    return ("word", "word") if flag.parse is str else ("7", 7)


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.field)
def test_every_flag_reaches_its_field(flag: Flag) -> None:
    for name in flag.names:
        text, expected = ("", True) if flag.parse is None else sample(flag)
        spellings = [
            [name, text],
            [f"{name}={text}"],
        ]
        if name.startswith("--"):
            spellings.append([name.replace("-", "_").replace("__", "--", 1), text])
        for words in [[name]] if flag.parse is None else spellings:
            parsed = parse_flags([*words, *COMPANIONS.get(flag.field, ())])
            engine, server = parsed.configs()
            config = engine if flag.section == "engine" else server
            assert getattr(config, flag.field) == expected
            assert not parsed.warnings


@pytest.mark.parametrize(
    "flag", [flag for flag in FLAGS if flag.parse is None], ids=lambda flag: flag.field
)
def test_switches_go_off_as_well(flag: Flag) -> None:
    off = "--no-" + flag.names[0][2:]
    for words in ([off], [flag.names[0] + "=false"], [flag.names[0], off]):
        parsed = parse_flags(words)
        section = parsed.engine if flag.section == "engine" else parsed.server
        assert section[flag.field] is False


@pytest.mark.parametrize(
    "flag", [flag for flag in FLAGS if flag.parse is not None], ids=lambda flag: flag.field
)
def test_a_missing_value_is_said(flag: Flag) -> None:
    with pytest.raises(FlagError, match=f"^{flag.names[0]} needs a value$"):
        parse_flags([flag.names[0]])


@pytest.mark.parametrize("foreign", FOREIGN, ids=lambda foreign: foreign.names[0])
def test_every_foreign_flag_gets_one_sentence(foreign: Foreign) -> None:
    for name in foreign.names:
        words = [name, "whatever"] if foreign.takes_value else [name]
        if foreign.is_refused:
            with pytest.raises(FlagError) as error:
                parse_flags(words)
            assert name in str(error.value)
            assert "\n" not in str(error.value)
        else:
            (warning,) = parse_flags(words).warnings
            assert warning.startswith(name)


def test_foreign_flags_that_ask_for_what_happens_anyway() -> None:
    words = ["--tensor-parallel-size", "1", "--preemption-mode=recompute", "--tokenizer-mode=auto"]
    assert parse_flags(words).warnings == ()


def test_fields_are_those_of_the_configurations() -> None:
    for flag in FLAGS:
        config = EngineConfig if flag.section == "engine" else ServerConfig
        assert flag.field in config.__dataclass_fields__
    names = [name for entry in (*FLAGS, *FOREIGN) for name in entry.names]
    assert len(names) == len(set(names))
    reachable = {flag.field for flag in FLAGS} | IMPLIED
    assert reachable == {*EngineConfig.__dataclass_fields__, *ServerConfig.__dataclass_fields__}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--max-num-seqs", "0"], "--max-num-seqs must be at least 1, got 0"),
        (["--max-num-seqs", "many"], "--max-num-seqs must be a whole number, got 'many'"),
        (["--port", "99999"], "--port must be from 0 to 65535, got 99999"),
        (["--watermark", "1"], "--watermark must be at least 0 and less than 1, got '1'"),
        (["--scheduling-policy", "lifo"], "must be fcfs, priority, sjf, fair or edf, got 'lifo'"),
        (["--dtype", "int3"], "--dtype must be auto, float32 or bfloat16, got 'int3'"),
        (["--max-model-len", "long"], "--max-model-len must be a number such as"),
        (["--chat-template", "/none"], "--chat-template must be a file, and '/none' is none"),
        (["--max-num-seq", "4"], "there is no flag --max-num-seq: did you mean --max-num-seqs?"),
        (["a", "b"], "there is a model already, so what is 'b'?"),
        (["--api-key", ""], "--api-key must not be empty"),
        (["--record", ""], "--record must not be empty: give a value or leave it out"),
        (["--served-model-name="], "--served-model-name must not be empty"),
        (["--max-num-seqs", "9" * 30], "--max-num-seqs must be a whole number of at most 63 bits"),
        (
            ["--default-chat-template-kwargs", '{"messages": []}'],
            "--default-chat-template-kwargs may not set messages: the server does",
        ),
        (
            ["--default-chat-template-kwargs", '{"a":' * 100_000],
            "--default-chat-template-kwargs is nested too deeply",
        ),
        (["--enable-prefix-caching=maybe"], "takes no value but true or false"),
        # What does not go together is said before a model is loaded.
        (["--kv-risk", "0.3"], "--kv-risk is for --kv-policy=predict, which is 'on-demand'"),
        (["--ageing-tokens-per-s", "5"], "--ageing-tokens-per-s is of --scheduling-policy sjf"),
        (["--tenant-weights", "a=2"], "--tenant-weights are of --scheduling-policy fair"),
        (
            ["--preemption-victim", "most-served"],
            "--preemption-victim most-served is of --scheduling-policy fair",
        ),
        (["--target-itl-ms", "1e-9"], "--target-itl-ms must be 0 (off) or from 0.001 to 1e9"),
        (
            ["--target-itl-ms", "9", "--batching-unit", "request"],
            "--target-itl-ms is for decodes that share their steps with prompts",
        ),
        (
            ["--max-num-partial-prefills", "4", "--no-enable-chunked-prefill"],
            "--target-itl-ms and --max-num-partial-prefills cut prompts into chunks",
        ),
        (
            [
                *("--no-enable-chunked-prefill", "--max-model-len", "100"),
                *("--max-num-batched-tokens", "50"),
            ],
            "but --max-num-batched-tokens=50 is below --max-model-len=100",
        ),
    ],
)
def test_one_sentence_and_exit_2(
    words: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *words]) == 2
    said = capsys.readouterr().err
    assert sentence in said
    assert said.count("\n") == 1


def test_a_pasted_vllm_line() -> None:
    line = (
        "HuggingFaceTB/SmolLM2-135M-Instruct --host 0.0.0.0 --port 8001 --dtype bfloat16 "
        "--served-model-name smol small --max-model-len 8K --max-num-seqs 64 "
        "--gpu-memory-utilization 0.9 --enable-prefix-caching --enable_chunked_prefill "
        "--tensor-parallel-size 1 --swap-space 4 --enforce-eager --disable-log-requests "
        "--api-key secret"
    )
    parsed = parse_flags(line.split())
    engine, server = parsed.configs()
    assert engine.model == "HuggingFaceTB/SmolLM2-135M-Instruct"
    assert engine.served_model_name == ("smol", "small")
    assert (engine.max_model_len, engine.max_num_seqs) == (8192, 64)
    assert (server.port, server.api_key) == (8001, ("secret",))
    assert [warning.split()[0] for warning in parsed.warnings] == [
        "--gpu-memory-utilization",
        "--swap-space",
        "--enforce-eager",
        "--disable-log-requests",
    ]


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--help"]) == 0
    shown = capsys.readouterr().out
    for flag in FLAGS:
        assert re.search(rf"^  {flag.names[0]}\b", shown, re.M), flag.names[0]
        assert flag.help in " ".join(shown.split())
    assert len(list(flag_help())) == len(FLAGS)


def test_sizes() -> None:
    assert [parse_size(t) for t in ("12", "8k", "8K", "1.5k", "2m")] == [
        12,
        8000,
        8192,
        1500,
        2_000_000,
    ]
    assert parse_bytes("1g") == parse_bytes("1GiB") == 1 << 30
    assert parse_bytes("1GB") == 10**9
    for bad in ("", "-1", "1x", "k"):
        with pytest.raises(ValueError, match="must be"):
            parse_size(bad)
        with pytest.raises(ValueError, match="must be"):
            parse_bytes(bad)


@pytest.mark.parametrize(
    ("words", "code"), [(["--version"], 0), (["--help"], 0), ([], 2), (["x"], 2)]
)
def test_commands(words: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == code
    said = capsys.readouterr()
    assert (said.out if code == 0 else said.err).startswith(("headway", "usage: headway"))
