"""Decoders taken apart into bytes per token give what the whole pipeline gives."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models

from headway.text.detokenizer import Detokenizer
from headway.text.token_bytes import UnknownDecoderError, byte_level_alphabet, decode_rule
from headway.text.tokenizer import Tokenizer

PIECES = ["▁", "▁▁", "▁the", "a", "▁b▁c", "é", "Ġx", "日", " ", " y ", "##z", "<0x41>", "<0xC3>"]
# Two bytes of one character, in that order only: elsewhere the library's answer differs by design.
VALID = st.lists(
    st.sampled_from([*([i] for i in range(len(PIECES) - 1)), [len(PIECES) - 1, len(PIECES)]])
).map(lambda runs: [i for run in runs for i in run])

DECODERS = {
    "none": None,
    "byte level": decoders.ByteLevel(),
    "metaspace": decoders.Metaspace(),
    "metaspace without prefix": decoders.Metaspace(prepend_scheme="never"),
    "byte fallback": decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()]),
    "llama": decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    ),
    "strip of two": decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 2, 0)]
    ),
    # The library panics on a token that is one space, stripped at both ends.
    "strip of each token": decoders.Sequence([decoders.Strip(" ", 1, 0), decoders.Fuse()]),
    "replace after fusing": decoders.Sequence([decoders.Fuse(), decoders.Replace("▁", "__")]),
}


@cache
def tokenizer_with(name: str) -> Tokenizer:
    pieces = [*PIECES, "<0xA9>"]
    backend = tokenizers.Tokenizer(models.BPE({piece: i for i, piece in enumerate(pieces)}, []))
    if DECODERS[name] is not None:
        backend.decoder = DECODERS[name]
    return Tokenizer(backend)


@pytest.mark.parametrize("name", list(DECODERS))
@settings(max_examples=200, deadline=None)
@given(ids=VALID)
def test_streamed_text_equals_the_library_decode(name: str, ids: list[int]) -> None:
    tokenizer = tokenizer_with(name)
    detokenizer = Detokenizer(tokenizer)
    text = "".join(detokenizer.push([i]) for i in ids) + detokenizer.finish()
    assert text == tokenizer.decode(ids)
    assert text == tokenizer._backend.decode(ids)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"type": "CTC"}, "'CTC', which cannot be streamed"),
        ({"type": "Sequence", "decoders": 3}, "not a list"),
        ({"type": "Replace", "pattern": {"Regex": "a+"}, "content": ""}, "regular expression"),
        ({"type": "Strip", "content": " "}, "lacks"),
        (
            {
                "type": "Sequence",
                "decoders": [
                    {"type": "Fuse"},
                    {"type": "Strip", "content": " ", "start": 0, "stop": 1},
                ],
            },
            "strips the end",
        ),
    ],
)
def test_what_cannot_be_streamed_is_refused(spec: dict[str, Any], message: str) -> None:
    with pytest.raises(UnknownDecoderError, match=message):
        decode_rule(spec)


def test_the_byte_level_alphabet_is_the_library_s() -> None:
    from tokenizers.pre_tokenizers import ByteLevel

    alphabet = byte_level_alphabet()
    assert sorted(alphabet) == sorted(ByteLevel.alphabet())
    assert sorted(alphabet.values()) == list(range(256))
