"""Token ids to text, piece by piece and exactly: the pieces joined are the full decode."""

from __future__ import annotations

import codecs
from collections.abc import Iterable

from headway.text.tokenizer import Tokenizer


class Detokenizer:
    """The streaming form of `Tokenizer.decode`: O(bytes of the new tokens) for each push.

    A character is given out when its last byte arrives, and bytes that cannot begin a character
    become U+FFFD at once, so that at most three bytes are ever held back.

    `follows_text` says that the tokens continue a text (a completion's prompt): the space that
    begins the first word is then part of the output, whereas it is dropped at the start of a text.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        skip_special_tokens: bool = True,
        follows_text: bool = False,
    ) -> None:
        self._tokenizer = tokenizer
        self._skip_special_tokens = skip_special_tokens
        self._skipped_ids = tokenizer.special_ids if skip_special_tokens else frozenset()
        self._has_begun = follows_text
        self._strip_char, strip_count = tokenizer.strip_left
        self._num_to_strip = 0 if follows_text else strip_count
        self._utf8 = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_ids: Iterable[int]) -> str:
        """The text that is certain now and was not before; "" while a character is unfinished."""
        text = self._utf8.decode(b"".join(map(self._bytes_of, token_ids)))
        return self._strip(text) if self._num_to_strip else text

    def finish(self) -> str:
        """The rest: U+FFFD when the last character never got all its bytes, else ""."""
        return self._strip(self._utf8.decode(b"", final=True))

    def _bytes_of(self, token_id: int) -> bytes:
        if self._has_begun:  # the usual case, of every token; an id without a token has no bytes
            return b"" if token_id in self._skipped_ids else self._tokenizer.token_bytes(token_id)
        if not self._tokenizer.has_text(token_id, self._skip_special_tokens):
            return b""
        self._has_begun = True
        return self._tokenizer.first_token_bytes(token_id)

    def _strip(self, text: str) -> str:
        start = 0
        while self._num_to_strip and text.startswith(self._strip_char, start):
            start += 1
            self._num_to_strip -= 1
        if start < len(text):
            self._num_to_strip = 0
        return text[start:]
