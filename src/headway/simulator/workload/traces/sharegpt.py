"""ShareGPT: a JSON array of conversations, whose texts are counted and forgotten.

It has no times: conversations begin as the arrivals given say. Each answer of the model is the
output of a request whose new words are all that was said since the answer before.
"""

from __future__ import annotations

import json
from array import array
from codecs import getincrementaldecoder
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from headway.simulator.workload.exact_math import Integers
from headway.simulator.workload.sessions import Conversations
from headway.simulator.workload.traces.text import chunks
from headway.simulator.workload.waits import NO_WAIT, WaitLaw

ANSWERERS = frozenset({"gpt", "chatgpt", "bing", "bard", "assistant", "model"})
ASKERS = frozenset({"human", "user", "system", "tool"})
_LONGEST = 1 << 26  # characters of a conversation; what goes on for longer is no JSON
_LONGEST_SHOWN = 100  # characters of what is wrong
_SPACE = " \t\r\n"

CountTokens = Callable[[str], int]


def quarter_of_characters(text: str) -> int:
    """Tokens of a text at four characters each: a rule of thumb for English."""
    return -(-len(text) // 4)


def read_share_gpt(
    path: Path,
    count_tokens: CountTokens = quarter_of_characters,
    counted_as: str = "characters / 4",
    think: WaitLaw = NO_WAIT,
) -> Conversations:
    """Conversations with at least one answer. `counted_as` says in words what `count_tokens` does.

    Raises ValueError with file, line and number of the conversation for what is not one.
    """
    turns, prompts, outputs = array("q"), array("q"), array("q")
    num_left_out = 0
    for number, (line, value) in enumerate(_elements(path), 1):
        try:
            pairs = list(_exchanges(value, count_tokens))
        except ValueError as error:
            raise ValueError(f"{path}:{line}: conversation {number}: {error}") from None
        num_left_out += not pairs
        if pairs:
            turns.append(len(pairs))
            prompts.extend(prompt for prompt, _ in pairs)
            outputs.extend(output for _, output in pairs)
    if not turns:
        raise ValueError(f"{path}: no conversation has a question and an answer")
    source = f"{path}: tokens are {counted_as}"
    if num_left_out:
        source += f"; {num_left_out} conversations without a question and its answer are left out"
    return Conversations(source, _column(turns), _column(prompts), _column(outputs), think)


def _column(counts: array[int]) -> Integers:
    return np.frombuffer(counts, dtype=np.int64)


def _exchanges(value: Any, count_tokens: CountTokens) -> Iterator[tuple[int, int]]:
    """New words and answer of each turn, in tokens; answers to nothing are left out."""
    if not isinstance(value, dict) or not isinstance(value.get("conversations"), list):
        raise ValueError("is not an object with a list of conversations")
    asked = 0
    for message in value["conversations"]:
        if not isinstance(message, dict):
            raise ValueError("a message is not an object")
        role, text = message.get("from"), message.get("value")
        is_known = isinstance(role, str) and role in ANSWERERS | ASKERS
        if not (is_known and isinstance(text, str)):
            shown = repr(role)[:_LONGEST_SHOWN]
            raise ValueError(f"a message from {shown} has no text or comes from nobody known")
        tokens = count_tokens(text) if text else 0
        if role in ASKERS:
            asked += tokens
        elif asked and tokens:
            yield asked, tokens
            asked = 0


def _elements(path: Path) -> Iterator[tuple[int, Any]]:
    """The elements of an array with the lines where they begin, one in memory at a time."""
    array_text = _ArrayText(path)
    array_text.expect("[")
    if array_text.peek() == "]":
        return
    while True:
        yield array_text.value()
        if array_text.expect(",]") == "]":
            break
    if array_text.peek():
        raise ValueError(f"{path}:{array_text.line}: something follows the end of the array")


class _ArrayText:
    """A window on the text that moves forward."""

    def __init__(self, path: Path) -> None:
        self.line = 1
        self._num_read = 0
        self._path = path
        self._chunks = chunks(path)
        self._decode = getincrementaldecoder("utf-8-sig")().decode
        self._decoder = json.JSONDecoder()
        self._text = ""
        self._at = 0

    def peek(self) -> str:
        """The next character that is no space; none at the end."""
        while True:
            start = self._at
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            self.line += self._text.count("\n", start, self._at)
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._read_on():
                return ""

    def expect(self, characters: str) -> str:
        found = self.peek()
        if not found:
            raise ValueError(f"{self._path}:{self.line}: is cut off before the end of the array")
        if found not in characters:
            wanted = " or ".join(characters)
            raise ValueError(f"{self._path}:{self.line}: {wanted} is needed, not {found}")
        self._at += 1
        return found

    def value(self) -> tuple[int, Any]:
        self.peek()
        while True:
            try:
                value, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                if len(self._text) - self._at < _LONGEST and self._read_on():
                    continue
                line = self.line + self._text.count("\n", self._at, error.pos)
                raise ValueError(f"{self._path}:{line}: {error.msg}") from None
            except (ValueError, RecursionError) as error:  # too many digits, nested too deeply
                number = self._num_read + 1
                raise ValueError(
                    f"{self._path}:{self.line}: conversation {number}: {error}"
                ) from None
            self._num_read += 1
            line = self.line
            self.line += self._text.count("\n", self._at, end)
            self._at = end
            return line, value

    def _read_on(self) -> bool:
        chunk = next(self._chunks, None)
        try:
            more = self._decode(b"" if chunk is None else chunk, chunk is None)
        except UnicodeDecodeError:
            raise ValueError(f"{self._path}:{self.line}: is not UTF-8") from None
        self._text, self._at = self._text[self._at :] + more, 0
        return chunk is not None
