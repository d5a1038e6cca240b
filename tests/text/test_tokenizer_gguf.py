"""Tokenizers from GGUF metadata: the kinds, the special tokens, and damage of every sort."""

from __future__ import annotations

from typing import Any

import pytest
import vocabularies
from hypothesis import given, settings
from hypothesis import strategies as st
from text_corpus import NASTY_TEXTS

from headway.text.pre_tokenizers import PRE_TOKENIZERS
from headway.text.tokenizer import TokenizerError
from headway.text.tokenizer_gguf import tokenizer_from_gguf


@pytest.mark.parametrize("kind", list(PRE_TOKENIZERS))
def test_every_byte_level_kind_gives_the_text_back(kind: str) -> None:
    tokenizer = tokenizer_from_gguf(vocabularies.byte_level_metadata(kind))
    for text in NASTY_TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False)
        assert tokenizer.decode(ids, skip_special_tokens=False) == text


def words_of(kind: str, text: str) -> list[str]:
    """The words that `kind` cuts `text` into before merging."""
    tokenizer = tokenizer_from_gguf(vocabularies.byte_level_metadata(kind))
    split = tokenizer._backend.pre_tokenizer.pre_tokenize_str(text)
    return [text[start:end] for _, (start, end) in split]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("gpt-2", ["It", "'s", " 12345", " xY", "  ", " z", "\n\n"]),
        ("smollm", ["It", "'s", " ", "1", "2", "3", "4", "5", " xY", "  ", " z", "\n\n"]),
        ("llama-bpe", ["It", "'s", " ", "123", "45", " xY", "  ", " z", "\n\n"]),
        ("qwen2", ["It", "'s", " ", "1", "2", "3", "4", "5", " xY", "  ", " z", "\n\n"]),
        ("gpt-4o", ["It's", " ", "123", "45", " x", "Y", "  ", " z", "\n\n"]),
        ("tekken", ["It", "'s", " ", "1", "2", "3", "4", "5", " x", "Y", "  ", " z", "\n\n"]),
    ],
)
def test_kinds_cut_words_where_they_should(kind: str, words: list[str]) -> None:
    text = "It's 12345 xY   z\n\n"
    assert words_of(kind, text) == words


def test_special_tokens_are_found_in_text_and_left_out_of_the_decode() -> None:
    tokenizer = vocabularies.byte_level()
    ids = tokenizer.encode("a<|im_end|><think>b")
    assert [tokenizer.id_to_token(i) for i in ids] == ["a", "<|im_end|>", "<think>", "b"]
    assert tokenizer.decode(ids) == "a<think>b"
    assert tokenizer.decode(ids, skip_special_tokens=False) == "a<|im_end|><think>b"
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert tokenizer.end_token_ids == {"eos_token": tokenizer.eos_token_id}


def test_added_tokens_may_hold_the_mark_for_a_space() -> None:
    metadata = vocabularies.byte_level_metadata()
    metadata["tokenizer.ggml.tokens"][-1] = "<|tool▁calls|>"
    tokenizer = tokenizer_from_gguf(metadata)
    assert tokenizer.encode("<|tool▁calls|>") == [tokenizer.vocab_size - 1]


def test_bos_and_eos_are_added_when_the_file_says_so() -> None:
    metadata = vocabularies.byte_level_metadata(add_bos_token=True, add_eos_token=True)
    tokenizer = tokenizer_from_gguf(metadata)
    bos, eos = tokenizer.bos_token_id, tokenizer.eos_token_id
    assert tokenizer.encode("x") == [bos, *tokenizer.encode("x", add_special_tokens=False), eos]
    assert tokenizer.encode("") == [bos, eos]


def test_without_a_word_on_it_only_the_kinds_that_do_so_add_bos() -> None:
    for kind, adds_bos in (("llama-bpe", True), ("qwen2", False)):
        metadata = vocabularies.byte_level_metadata(kind)
        del metadata["tokenizer.ggml.add_bos_token"]
        tokenizer = tokenizer_from_gguf(metadata)
        assert (tokenizer.encode("x")[0] == tokenizer.bos_token_id) is adds_bos
    assert vocabularies.sentencepiece().encode("x")[0] == 1


def test_sentencepiece_falls_back_to_bytes_and_merges_by_score() -> None:
    tokenizer = vocabularies.sentencepiece()
    pieces = [tokenizer.id_to_token(i) for i in tokenizer.encode("𒀀", add_special_tokens=False)]
    assert pieces[-4:] == ["<0xF0>", "<0x92>", "<0x80>", "<0x80>"]
    assert tokenizer.decode(tokenizer.encode("the dog")) == "the dog"
    bare = vocabularies.sentencepiece_without_prefix()
    assert len(bare.encode("")) == 1
    assert bare.decode(bare.encode(" x")) == " x"


def test_named_chat_templates_are_kept_beside_the_default() -> None:
    metadata = vocabularies.byte_level_metadata()
    metadata |= {"tokenizer.chat_template": "A", "tokenizer.chat_template.tool_use": "B"}
    tokenizer = tokenizer_from_gguf(metadata)
    assert tokenizer.chat_templates == {"default": "A", "tool_use": "B"}
    assert tokenizer.chat_template == "A"


def test_half_a_surrogate_pair_is_refused_with_its_place() -> None:
    with pytest.raises(TokenizerError, match="character 2"):
        vocabularies.byte_level().encode("ab\ud83d")


def test_long_texts_are_fast_enough_to_serve() -> None:
    for tokenizer in (vocabularies.byte_level(), vocabularies.sentencepiece()):
        text = "The quick brown fox 12 日本 " * 4000
        assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model": "rwkv"}, "'rwkv', which Headway does not know"),
        ({"model": 3}, "must be a string"),
        ({"pre": "made-up"}, "'made-up', which Headway does not know"),
        ({"tokens": "abc"}, "must be a list"),
        ({"tokens": []}, "0 entries"),
        ({"tokens": ["a", 3]}, r"tokens\[1\] must be a string"),
        ({"tokens": ["a", "a"]}, "'a' twice"),
        ({"token_type": [1, 2]}, "has 2 entries"),
        ({"merges": ["zz yy"]}, "does not join two tokens"),
        ({"merges": ["nospace"]}, "does not join two tokens"),
        ({"eos_token_id": 10**6}, "but the vocabulary has"),
        ({"eos_token_id": "2"}, "must be a token id"),
        ({"add_bos_token": "yes"}, "must be true or false"),
        ({"scores": [float("nan")] * 3}, "entries"),
    ],
)
def test_damage_is_named(change: dict[str, Any], message: str) -> None:
    with pytest.raises(TokenizerError, match=message):
        tokenizer_from_gguf(vocabularies.byte_level_metadata(**change))


def test_a_file_without_a_tokenizer_says_what_to_do() -> None:
    with pytest.raises(TokenizerError, match="--tokenizer"):
        tokenizer_from_gguf({"general.architecture": "llama"})


JUNK = (
    st.none()
    | st.integers()
    | st.text(max_size=3)
    | st.lists(st.integers() | st.text(), max_size=3)
)
KEYS = ["model", "pre", "tokens", "token_type", "merges", "scores", "bos_token_id", "add_bos_token"]


@settings(max_examples=80, deadline=None)
@given(junk=st.dictionaries(st.sampled_from(KEYS), JUNK, min_size=1, max_size=3))
def test_junk_is_refused_or_harmless(junk: dict[str, Any]) -> None:
    metadata = vocabularies.sentencepiece_metadata()
    metadata |= {f"tokenizer.ggml.{key}": value for key, value in junk.items()}
    # Any error but a TokenizerError fails the test.
    assert outcome(metadata) == "ids" or len(outcome(metadata)) > 20


def outcome(metadata: dict[str, Any]) -> str:
    try:
        return "ids" if tokenizer_from_gguf(metadata).encode("some text") else "nothing"
    except TokenizerError as error:
        return str(error)
