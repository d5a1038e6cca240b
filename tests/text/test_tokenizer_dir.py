"""Tokenizers from model directories: which file says what, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import vocabularies

from headway.text.tokenizer import TokenizerError
from headway.text.tokenizer_dir import load_tokenizer_dir


def write(folder: Path, config: dict[str, Any] | None = None) -> Path:
    (folder / "tokenizer.json").write_text(vocabularies.byte_level().to_json(), encoding="utf-8")
    if config is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def test_the_directory_gives_the_same_ids_as_the_gguf(tmp_path: Path) -> None:
    loaded = load_tokenizer_dir(write(tmp_path, {"eos_token": {"content": "<|im_end|>"}}))
    text = "It's 12 日本<|im_end|>"
    assert loaded.encode(text) == vocabularies.byte_level().encode(text)
    assert loaded.eos_token == "<|im_end|>"
    assert loaded.bos_token is None


def test_bos_comes_from_the_configuration_when_the_file_is_silent(tmp_path: Path) -> None:
    config = {"bos_token": "<|im_start|>", "add_bos_token": True}
    loaded = load_tokenizer_dir(write(tmp_path, config))
    assert loaded.encode("x")[0] == loaded.bos_token_id


def test_special_tokens_map_fills_what_the_configuration_lacks(tmp_path: Path) -> None:
    (tmp_path / "special_tokens_map.json").write_text('{"eos_token": "<|endoftext|>"}')
    assert load_tokenizer_dir(write(tmp_path, {})).eos_token == "<|endoftext|>"


def test_tokens_that_only_the_configuration_lists_are_added(tmp_path: Path) -> None:
    next_id = vocabularies.byte_level().vocab_size
    entry = {"content": "<|new|>", "special": True}
    loaded = load_tokenizer_dir(write(tmp_path, {"added_tokens_decoder": {str(next_id): entry}}))
    assert loaded.encode("a<|new|>")[-1] == next_id
    assert next_id in loaded.special_ids


def test_template_files_come_before_the_configuration(tmp_path: Path) -> None:
    write(tmp_path, {"chat_template": [{"name": "default", "template": "old"}]})
    assert load_tokenizer_dir(tmp_path).chat_template == "old"
    (tmp_path / "chat_template.json").write_text('{"chat_template": "newer"}')
    assert load_tokenizer_dir(tmp_path).chat_template == "newer"
    (tmp_path / "chat_template.jinja").write_text("newest")
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "rag.jinja").write_text("rag")
    assert load_tokenizer_dir(tmp_path).chat_templates == {"default": "newest", "rag": "rag"}


def test_padding_and_truncation_of_the_file_are_off(tmp_path: Path) -> None:
    spec = json.loads(vocabularies.byte_level().to_json())
    spec["truncation"] = {
        "direction": "Right",
        "max_length": 2,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    loaded = load_tokenizer_dir(tmp_path)
    assert len(loaded.encode("one two three four")) > 2


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"eos_token": "<nope>"}, "is no token of tokenizer.json"),
        ({"eos_token": 3}, "must be a string"),
        ({"added_tokens_decoder": [1]}, "must be an object"),
        ({"added_tokens_decoder": {"x": {}}}, "where a token id should be"),
        ({"added_tokens_decoder": {"99999": {}}}, "has no content"),
        ({"added_tokens_decoder": {"99999": {"content": "<x>"}}}, "do not belong together"),
        ({"chat_template": [{"name": 1}]}, "must be a string"),
        ([], "must hold a JSON object"),
    ],
)
def test_damage_is_named(tmp_path: Path, config: Any, message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        load_tokenizer_dir(write(tmp_path, config))


def test_a_missing_or_broken_file_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="save_pretrained"):
        load_tokenizer_dir(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0"')
    with pytest.raises(TokenizerError, match="is not a tokenizer"):
        load_tokenizer_dir(tmp_path)


def test_a_decoder_that_cannot_be_streamed_is_refused(tmp_path: Path) -> None:
    spec = json.loads(vocabularies.byte_level().to_json())
    spec["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    with pytest.raises(TokenizerError, match="WordPiece"):
        load_tokenizer_dir(tmp_path)
