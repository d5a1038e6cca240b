"""Deltas joined are the full decode; never half a character."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
import vocabularies
from hypothesis import given, settings
from hypothesis import strategies as st
from text_corpus import HARD_CHARACTERS, NASTY_TEXTS

from headway.text.detokenizer import Detokenizer
from headway.text.tokenizer import Tokenizer

KINDS = pytest.mark.parametrize("kind", list(vocabularies.TOKENIZERS))


def deltas_of(tokenizer: Tokenizer, pieces: list[list[int]], **options: bool) -> list[str]:
    detokenizer = Detokenizer(tokenizer, **options)
    return [*(detokenizer.push(piece) for piece in pieces), detokenizer.finish()]


def split_at(ids: list[int], cuts: list[int]) -> list[list[int]]:
    edges = [0, *sorted(cut % (len(ids) + 1) for cut in cuts), len(ids)]
    return [ids[a:b] for a, b in pairwise(edges)]


@KINDS
@pytest.mark.parametrize("text", NASTY_TEXTS)
def test_text_comes_back_token_by_token(kind: str, text: str) -> None:
    tokenizer = vocabularies.TOKENIZERS[kind]()
    ids = tokenizer.encode(text, add_special_tokens=False)
    deltas = deltas_of(tokenizer, [[i] for i in ids], skip_special_tokens=False)
    assert "".join(deltas) == tokenizer.decode(ids, skip_special_tokens=False)
    if "▁" not in text and "<0x" not in text and "<s>" not in text:
        assert "".join(deltas) == text


@KINDS
def test_characters_of_one_byte_tokens_are_never_cut(kind: str) -> None:
    tokenizer, generator = vocabularies.TOKENIZERS[kind](), random.Random(0)
    alphabet = HARD_CHARACTERS.replace("\ufffd", "").replace(" ", "")
    for _ in range(250):
        text = "".join(generator.choices(alphabet, k=30))
        ids = vocabularies.byte_ids(tokenizer, text.encode())
        deltas = deltas_of(tokenizer, [[i] for i in ids])
        assert "".join(deltas) == text
        assert "\ufffd" not in "".join(deltas)
        assert [delta for delta in deltas if delta] == list(text)


@KINDS
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_deltas_join_to_the_decode_for_any_ids_at_any_split(kind: str, data: st.DataObject) -> None:
    tokenizer = vocabularies.TOKENIZERS[kind]()
    some_ids = st.integers(0, tokenizer.vocab_size + 3)
    ids = data.draw(st.lists(some_ids | st.sampled_from(sorted(tokenizer.added_ids)), max_size=30))
    cuts = data.draw(st.lists(st.integers(0, 30), max_size=6))
    skip = data.draw(st.booleans())
    deltas = deltas_of(tokenizer, split_at(ids, cuts), skip_special_tokens=skip)
    assert "".join(deltas) == tokenizer.decode(ids, skip_special_tokens=skip)


@KINDS
@settings(max_examples=150, deadline=None)
@given(text=st.text(st.sampled_from(HARD_CHARACTERS), max_size=30), seed=st.integers(0, 2**16))
def test_decode_equals_the_library_on_valid_text(kind: str, text: str, seed: int) -> None:
    tokenizer = vocabularies.TOKENIZERS[kind]()
    ids = tokenizer.encode(text) + vocabularies.byte_ids(tokenizer, text.encode())
    library = tokenizer._backend.decode(ids, skip_special_tokens=False)
    assert tokenizer.decode(ids, skip_special_tokens=False) == library


@KINDS
@pytest.mark.parametrize("raw", [b"\xff\xfe", b"\xf0\x9f\x92\xff", b"\xe4\xbd\xe4", b"\x80" * 5])
def test_bad_bytes_show_within_four_bytes(kind: str, raw: bytes) -> None:
    tokenizer = vocabularies.TOKENIZERS[kind]()
    detokenizer, shown = Detokenizer(tokenizer), ""
    ids = vocabularies.byte_ids(tokenizer, raw)
    for token_id in ids[:4]:
        shown += detokenizer.push([token_id])
    assert "\ufffd" in shown + (detokenizer.finish() if len(ids) < 4 else "")


@KINDS
def test_an_unfinished_character_shows_once_at_the_end(kind: str) -> None:
    tokenizer = vocabularies.TOKENIZERS[kind]()
    ids = vocabularies.byte_ids(tokenizer, "ab👍".encode()[:-1])
    assert deltas_of(tokenizer, [[i] for i in ids]) == ["a", "b", "", "", "", "\ufffd"]


def test_the_first_word_keeps_its_space_only_after_a_text() -> None:
    tokenizer = vocabularies.sentencepiece()
    ids = tokenizer.encode("the dog", add_special_tokens=False)
    assert "".join(deltas_of(tokenizer, [[i] for i in ids])) == "the dog"
    assert "".join(deltas_of(tokenizer, [[i] for i in ids], follows_text=True)) == " the dog"


def test_only_the_start_of_a_text_loses_its_space() -> None:
    tokenizer = vocabularies.sentencepiece()
    ids = vocabularies.byte_ids(tokenizer, b"a b  c ")
    assert deltas_of(tokenizer, [[i] for i in ids]) == [*"a b  c ", ""]
    ids = vocabularies.byte_ids(tokenizer, b"  a")
    assert deltas_of(tokenizer, [[i] for i in ids]) == ["", " ", "a", ""]


def test_a_skipped_token_between_the_bytes_of_a_character_does_not_break_it() -> None:
    tokenizer = vocabularies.byte_level()
    first, *rest = vocabularies.byte_ids(tokenizer, "é".encode())
    assert tokenizer.eos_token_id is not None
    assert deltas_of(tokenizer, [[first], [tokenizer.eos_token_id], rest]) == ["", "", "é", ""]
