"""Bad words as tokens: at the start of a text and after a space."""

from __future__ import annotations

import pytest
import tokenizers
from tokenizers import models, pre_tokenizers

from headway.text.bad_words import bad_word_ids
from headway.text.tokenizer import Tokenizer

# "sea" and " sea" have tokens of their own; "foam" is four letters either way.
PIECES = ["\u0120", *"seafoam", "se", "sea", "\u0120sea"]


def tokenizer() -> Tokenizer:
    pieces = list(dict.fromkeys(PIECES))
    vocabulary = {piece: number for number, piece in enumerate(pieces)}
    merges = [("s", "e"), ("se", "a"), ("\u0120", "sea")]
    backend = tokenizers.Tokenizer(models.BPE(vocabulary, merges))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return Tokenizer(backend)


def ids(*pieces: str) -> tuple[int, ...]:
    named = [tokenizer().token_to_id(piece) for piece in pieces]
    assert None not in named
    return tuple(i for i in named if i is not None)


@pytest.mark.parametrize("word", ["sea", " sea", "  sea"])
def test_a_word_is_banned_as_it_begins_a_text_and_as_it_follows_a_space(word: str) -> None:
    assert bad_word_ids(tokenizer(), [word]) == (ids("sea"), ids("\u0120sea"))


def test_a_space_that_is_a_token_of_its_own_adds_nothing() -> None:
    assert bad_word_ids(tokenizer(), ["foam"]) == (ids(*"foam"),)


def test_several_words_and_none() -> None:
    assert bad_word_ids(tokenizer(), ["sea", "foam", "sea"]) == (
        ids("sea"),
        ids("\u0120sea"),
        ids(*"foam"),
    )
    assert bad_word_ids(tokenizer(), []) == ()


@pytest.mark.parametrize("word", ["", "  ", "xyz"])
def test_a_word_without_tokens_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match=r"bad_words: .* leave it out"):
        bad_word_ids(tokenizer(), [word])
