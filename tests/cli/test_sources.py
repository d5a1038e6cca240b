"""Command line above file above environment, and keys from anywhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from headway.cli.settings import sampling_defaults
from headway.cli.sources import read_flags
from headway.flags import FlagError
from headway.server.config import ServerConfig

CONFIG = """
model: from-the-file
port: 9000
served-model-name: [a, b]
max_num_seqs: 16
enable-prefix-caching: false
disable_log_stats: true
default-chat-template-kwargs: {enable_thinking: false}
enforce-eager: true
uvicorn-log-level: warning
"""


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    return str(path)


def test_a_file_is_a_command_line(tmp_path: Path) -> None:
    flags = read_flags(["--config", write(tmp_path, CONFIG)], {})
    engine, server = flags.configs()
    assert (engine.model, engine.max_num_seqs) == ("from-the-file", 16)
    assert engine.served_model_name == ("a", "b")
    assert not engine.enable_prefix_caching
    assert (server.port, server.uvicorn_log_level) == (9000, "warning")
    assert server.disable_log_stats
    assert server.default_chat_template_kwargs == {"enable_thinking": False}
    assert [warning.split()[0] for warning in flags.warnings] == ["--enforce-eager"]


def test_the_command_line_wins(tmp_path: Path) -> None:
    words = ["mine", f"--config={write(tmp_path, CONFIG)}", "--port", "1"]
    engine, server = read_flags([*words, "--served-model-name", "c"], {}).configs()
    assert (engine.model, server.port, engine.served_model_name) == ("mine", 1, ("c",))
    assert engine.max_num_seqs == 16


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("- a\n- b", "must be a YAML mapping of flags to values"),
        ("port: [", "is not YAML"),
        ("port:", "--port has no value: give one or leave the line out"),
        ("prot: 1", "there is no flag --prot: did you mean --port?"),
        ("port: many", "--port must be a whole number, got 'many'"),
        ("trust-remote-code: true", "--trust-remote-code is refused"),
        ("port:", ".yaml: --port has no value"),
        ("api-key: &a [*a]", "a value stands within itself"),
        ("override-generation-config: &a {b: *a}", "a value stands within itself"),
        ("!!python/object/apply:os.system ['true']", "is not YAML"),
    ],
)
def test_a_bad_file_is_one_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(FlagError) as error:
        read_flags(["--config", write(tmp_path, text)], {})
    assert sentence in str(error.value)
    assert "\n" not in str(error.value)


def test_a_date_in_an_object_is_its_text(tmp_path: Path) -> None:
    path = write(tmp_path, "default-chat-template-kwargs: {today: 2020-01-31}")
    _, server = read_flags(["--config", path], {}).configs()
    assert server.default_chat_template_kwargs == {"today": "2020-01-31"}


def test_an_empty_file_and_none(tmp_path: Path) -> None:
    assert read_flags(["--config", write(tmp_path, "")], {}).engine == {}
    with pytest.raises(FlagError, match="cannot be read: No such file"):
        read_flags(["--config", str(tmp_path / "none.yaml")], {})
    with pytest.raises(FlagError, match="--config needs a value"):
        read_flags(["--config"], {})


def test_keys_from_flags_files_and_the_environment(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text("# for the team\none\n\n  two \n")
    environ = {"VLLM_API_KEY": "theirs", "HEADWAY_API_KEY": "ours"}

    def found(*words: str) -> tuple[str, ...]:
        return read_flags(words, environ).configs()[1].api_key

    assert found() == ("ours", "theirs")
    assert found("--api-key", "flag") == ("flag",)
    assert found("--api-key-file", str(keys)) == ("one", "two")
    assert found("--api-key", "flag", "--api-key-file", str(keys)) == ("flag", "one", "two")
    keys.write_text("# nothing\n")
    with pytest.raises(FlagError, match="has no key"):
        found("--api-key-file", str(keys))


def test_variables_that_people_have_set_already() -> None:
    engine, server = read_flags(
        [], {"VLLM_CPU_KVCACHE_SPACE": "1.5", "VLLM_SERVER_DEV_MODE": "1"}
    ).configs()
    assert engine.kv_cache_memory_bytes == 3 << 29
    assert server.enable_dev_endpoints
    words = ["--kv-cache-memory-bytes", "1g"]
    engine, _ = read_flags(words, {"VLLM_CPU_KVCACHE_SPACE": "4"}).configs()
    assert engine.kv_cache_memory_bytes == 1 << 30
    assert read_flags([], {"VLLM_BATCH_INVARIANT": "1"}).warnings == ()
    assert "always 1" in read_flags([], {"VLLM_BATCH_INVARIANT": "0"}).warnings[0]
    with pytest.raises(FlagError, match="VLLM_CPU_KVCACHE_SPACE must be a number of GiB"):
        read_flags([], {"VLLM_CPU_KVCACHE_SPACE": "much"})


def test_sampling_defaults_as_vllm_has_them(tmp_path: Path) -> None:
    own = {"temperature": 0.6, "top_k": 20}
    (tmp_path / "generation_config.json").write_text('{"temperature": 0.1, "max_new_tokens": 5}')

    def found(**fields: object) -> dict[str, object]:
        return sampling_defaults(ServerConfig(**fields), own)  # type: ignore[arg-type]

    assert found() == own
    assert found(generation_config="vllm") == {}
    assert found(generation_config=str(tmp_path)) == {"temperature": 0.1}
    assert found(override_generation_config={"top_p": 0.5, "top_k": None}) == {
        "temperature": 0.6,
        "top_p": 0.5,
    }
    both = found(generation_config="vllm", override_generation_config={"top_p": 0.5})
    assert both == {"top_p": 0.5}
    with pytest.raises(FlagError, match=r"may set temperature, .*, not eos_token_id"):
        found(override_generation_config={"eos_token_id": 1})
    with pytest.raises(FlagError, match="temperature must be at least 0"):
        found(override_generation_config={"temperature": -1})
    with pytest.raises(ValueError, match=r"has no generation_config\.json"):
        found(generation_config=str(tmp_path / "none"))
