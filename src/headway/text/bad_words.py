"""Words that may not be said, as the token sequences that would say them."""

from __future__ import annotations

from collections.abc import Sequence

from headway.text.tokenizer import Tokenizer


def bad_word_ids(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """Each word as it begins a text and, where that is written with other tokens, after a space.

    Raises ValueError with a sentence for a word without any token.
    """
    found: dict[tuple[int, ...], None] = {}
    for word in words:
        bare = _encode(tokenizer, word.lstrip(), word)
        spaced = _encode(tokenizer, f" {word.lstrip()}", word)
        found[bare] = None
        # Another length means that the space is a token of its own: the bare word covers that.
        if len(spaced) == len(bare):
            found[spaced] = None
    return tuple(found)


def _encode(tokenizer: Tokenizer, text: str, word: str) -> tuple[int, ...]:
    ids = tokenizer.encode(text, add_special_tokens=False)
    if not ids:
        raise ValueError(f"bad_words: {word!r} has no tokens: leave it out")
    return tuple(ids)
