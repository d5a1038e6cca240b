from __future__ import annotations

from collections.abc import Sequence

from headway.text.tokenizer import Tokenizer


def bad_word_ids(tokenizer: Tokenizer, words: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(tokenizer.encode(w, False)) for w in words)
