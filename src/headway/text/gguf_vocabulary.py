"""The tokenizer part of a GGUF file's metadata, checked: hostile until it has passed here."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from headway.text.tokenizer import TokenizerError

_PREFIX = "tokenizer.ggml."
_MAX_TOKENS = 4_000_000
# Metadata names of tokens that end a text or a turn, and the name each is reported by.
_END_TOKEN_KEYS = ("eos_token_id", "eot_token_id", "eom_token_id")


class TokenType(IntEnum):
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True, slots=True)
class GgufVocabulary:
    """The lists have one entry per token id; `scores` is empty when the file has none."""

    metadata: Mapping[str, object]
    tokens: tuple[str, ...]
    types: tuple[int, ...]
    scores: tuple[float, ...]

    @property
    def ids(self) -> dict[str, int]:
        return {token: token_id for token_id, token in enumerate(self.tokens)}

    def tokens_of_type(self, wanted: TokenType) -> list[str]:
        return [t for t, kind in zip(self.tokens, self.types, strict=True) if kind == wanted]

    def token_id(self, key: str) -> int | None:
        """The id under `tokenizer.ggml.<key>`, or None when the file does not name one."""
        value = self.metadata.get(_PREFIX + key)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool):
            raise TokenizerError(f"{_PREFIX}{key} must be a token id, got {value!r}")
        # Converters write 2**32 - 1, or -1, for "there is none".
        if value in (-1, 2**32 - 1):
            return None
        if not 0 <= value < len(self.tokens):
            raise TokenizerError(
                f"{_PREFIX}{key} is {value}, but the vocabulary has {len(self.tokens)} tokens"
            )
        return value

    def end_token_ids(self) -> dict[str, int]:
        found = ((key.removesuffix("_id"), self.token_id(key)) for key in _END_TOKEN_KEYS)
        return {name: token_id for name, token_id in found if token_id is not None}

    def switch(self, key: str, default: bool) -> bool:
        value = self.metadata.get(_PREFIX + key, default)
        if not isinstance(value, bool):
            raise TokenizerError(f"{_PREFIX}{key} must be true or false, got {value!r}")
        return value

    def text(self, key: str, default: str) -> str:
        value = self.metadata.get(_PREFIX + key, default)
        if not isinstance(value, str):
            raise TokenizerError(f"{_PREFIX}{key} must be a string, got {value!r}")
        return value

    def merges(self) -> list[tuple[str, str]]:
        """The merge rules in order of precedence; each joins two tokens to a third."""
        known = self.ids
        pairs = []
        for rule in strings(self.metadata, _PREFIX + "merges"):
            # A half may itself begin with a space, so the border is searched from the second.
            border = rule.find(" ", 1)
            left, right = rule[:border], rule[border + 1 :]
            if border < 0 or left not in known or right not in known or left + right not in known:
                raise TokenizerError(
                    f"{_PREFIX}merges has {rule[:80]!r}, which does not join two tokens "
                    "of the vocabulary to a third: the file is damaged"
                )
            pairs.append((left, right))
        return pairs


def read_vocabulary(metadata: Mapping[str, object]) -> GgufVocabulary:
    """Check the lists of a GGUF's metadata; raises TokenizerError with what is wrong."""
    if _PREFIX + "tokens" not in metadata:
        raise TokenizerError(
            "the GGUF file has no tokenizer (tokenizer.ggml.tokens is missing): "
            "convert the model again with its tokenizer, or name one with --tokenizer"
        )
    tokens = strings(metadata, _PREFIX + "tokens")
    if not 0 < len(tokens) <= _MAX_TOKENS:
        raise TokenizerError(
            f"{_PREFIX}tokens has {len(tokens)} entries, expected 1 to {_MAX_TOKENS}"
        )
    _refuse_repeats(tokens)
    types = numbers(metadata, _PREFIX + "token_type", len(tokens)) or [1] * len(tokens)
    scores = numbers(metadata, _PREFIX + "scores", len(tokens))
    return GgufVocabulary(metadata, tuple(tokens), tuple(int(t) for t in types), tuple(scores))


def strings(metadata: Mapping[str, object], key: str) -> list[str]:
    """The list of strings under `key`; raises TokenizerError when it is anything else."""
    values = _sequence(metadata, key)
    for position, value in enumerate(values):
        if not isinstance(value, str):
            raise TokenizerError(f"{key}[{position}] must be a string, got {type(value).__name__}")
    return [str(value) for value in values]


def numbers(metadata: Mapping[str, object], key: str, length: int) -> list[float]:
    """The `length` finite numbers under `key`, or [] when the key is missing."""
    if key not in metadata:
        return []
    values = _sequence(metadata, key)
    if len(values) != length:
        raise TokenizerError(f"{key} has {len(values)} entries, but there are {length} tokens")
    checked = [value for value in values if isinstance(value, int | float)]
    if len(checked) != length or not all(map(math.isfinite, checked)):
        raise TokenizerError(f"{key} must hold finite numbers only")
    return checked


def _sequence(metadata: Mapping[str, object], key: str) -> Sequence[object]:
    values = metadata.get(key)
    if hasattr(values, "tolist"):
        values = values.tolist()
    if not isinstance(values, list | tuple):
        raise TokenizerError(f"{key} must be a list, got {type(values).__name__}")
    return values


def _refuse_repeats(tokens: Sequence[str]) -> None:
    first_id: dict[str, int] = {}
    for token_id, token in enumerate(tokens):
        if first_id.setdefault(token, token_id) != token_id:
            raise TokenizerError(
                f"tokenizer.ggml.tokens has {token[:80]!r} twice, "
                f"as {first_id[token]} and {token_id}: the file is damaged"
            )
