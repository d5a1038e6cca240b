"""Text to token ids and back, over the `tokenizers` library, with no model code."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

import tokenizers

from headway.text.token_bytes import DecodeRule, decode_rule

T = TypeVar("T")


class TokenizerError(ValueError):
    """A tokenizer or a text that cannot be used; the message says what to do."""


class Tokenizer:
    """One model's tokenizer: encode, decode, and the bytes of each token.

    `end_token_ids` maps a place that names an end-of-text token ("eos_token", "eot_token_id") to
    its id. `chat_templates` maps names to Jinja sources; the usual one is called "default".
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        bos_token_id: int | None = None,
        eos_token_id: int | None = None,
        end_token_ids: Mapping[str, int] | None = None,
        chat_templates: Mapping[str, str] | None = None,
    ) -> None:
        backend.no_truncation()
        backend.no_padding()
        self._backend = backend
        self.bos_token_id = bos_token_id
        self.eos_token_id = eos_token_id
        self.end_token_ids = dict(end_token_ids or {})
        self.chat_templates = dict(chat_templates or {})
        added = backend.get_added_tokens_decoder()
        self.added_ids = frozenset(added)
        self.special_ids = frozenset(i for i, token in added.items() if token.special)
        self._rule = _rule_of(backend)
        self._bytes_of_id: dict[int, bytes] = {}

    @property
    def chat_template(self) -> str | None:
        """The template called "default", or the only one there is."""
        if len(self.chat_templates) == 1:
            return next(iter(self.chat_templates.values()))
        return self.chat_templates.get("default")

    @property
    def bos_token(self) -> str | None:
        return None if self.bos_token_id is None else self.id_to_token(self.bos_token_id)

    @property
    def eos_token(self) -> str | None:
        return None if self.eos_token_id is None else self.id_to_token(self.eos_token_id)

    @cached_property
    def vocab_size(self) -> int:
        """One more than the largest id, so that every id is a row of a table of this length."""
        return max(self._backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    @cached_property
    def longest_token(self) -> int:
        """Characters of the longest token as the vocabulary writes it."""
        return max(map(len, self._backend.get_vocab(with_added_tokens=True)), default=1)

    @property
    def strip_left(self) -> tuple[str, int]:
        """The character, and how many of it at most, that a text loses at its start."""
        return self._rule.strip_char, self._rule.strip_count

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        """The ids of `text`; names of special tokens inside the text become those tokens.

        Raises TokenizerError when the text is not a string of valid Unicode.
        """
        _check_text(text)
        return self._backend.encode(text, add_special_tokens=add_special_tokens).ids

    def encode_batch(
        self, texts: Sequence[str], add_special_tokens: bool = True
    ) -> list[list[int]]:
        """As `encode`, for many texts at once."""
        for text in texts:
            _check_text(text)
        encodings = self._backend.encode_batch(list(texts), add_special_tokens=add_special_tokens)
        return [encoding.ids for encoding in encodings]

    def decode(self, token_ids: Iterable[int], skip_special_tokens: bool = True) -> str:
        """The text of `token_ids`; bytes that are not UTF-8 become U+FFFD, ids without a token "".

        The specification of `Detokenizer`, which gives the same text piece by piece. It equals
        the `tokenizers` library's own decode wherever the bytes are valid UTF-8. Elsewhere that
        library replaces a whole run of byte tokens once any of them is bad, which nobody can
        stream; here only the bad bytes are replaced.
        """
        shown = [i for i in token_ids if self.has_text(i, skip_special_tokens)]
        parts = [self.token_bytes(i) for i in shown]
        if shown:
            parts[0] = self.first_token_bytes(shown[0])
        text = b"".join(parts).decode("utf-8", "replace")
        char, count = self.strip_left
        num_stripped = 0
        while num_stripped < count and text.startswith(char, num_stripped):
            num_stripped += 1
        return text[num_stripped:]

    def has_text(self, token_id: int, skip_special_tokens: bool) -> bool:
        """Whether the token takes part in the text at all."""
        if skip_special_tokens and token_id in self.special_ids:
            return False
        return self.id_to_token(token_id) is not None

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that the token adds to a text that has begun; b"" for an id without a token."""
        known = self._bytes_of_id.get(token_id)
        if known is None:
            piece = self.id_to_token(token_id)
            known = b"" if piece is None else self._rule.token_bytes(piece)
            self._bytes_of_id[token_id] = known
        return known

    def first_token_bytes(self, token_id: int) -> bytes:
        """As `token_bytes`, for the token that begins a text."""
        piece = self.id_to_token(token_id)
        return b"" if piece is None else self._rule.first_token_bytes(piece)

    def id_to_token(self, token_id: int) -> str | None:
        """The token as the vocabulary writes it, or None when there is none."""
        if not 0 <= token_id < 2**32:
            raise TokenizerError(f"token ids must be from 0 to 2**32 - 1, got {token_id}")
        return self._backend.id_to_token(token_id)

    def token_to_id(self, token: str) -> int | None:
        return self._backend.token_to_id(token)

    def to_json(self) -> str:
        """The tokenizer in the `tokenizer.json` format."""
        return self._backend.to_str()


def call_library(make: Callable[[], T], what: str) -> T:
    """Run a call into the `tokenizers` library; any failure of it becomes a TokenizerError."""
    try:
        return make()
    except Exception as error:
        raise TokenizerError(f"{what}: {error}") from error
    except BaseException as error:
        # A Rust panic arrives as a BaseException of a type that cannot be imported.
        if type(error).__name__ != "PanicException":
            raise
        raise TokenizerError(f"{what}: {error}") from error


def _rule_of(backend: tokenizers.Tokenizer) -> DecodeRule:
    if backend.decoder is None:
        return decode_rule(None)
    spec = json.loads(backend.decoder.__getstate__())
    try:
        return decode_rule(spec)
    except ValueError as error:
        raise TokenizerError(str(error)) from error


def _check_text(text: object) -> None:
    if not isinstance(text, str):
        raise TokenizerError(f"the text to encode must be a string, got {type(text).__name__}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TokenizerError(
            f"the text has half of a surrogate pair at character {error.start}, "
            "which is not a character: send valid Unicode"
        ) from error
