"""Files of OpenAI's batch format: a request on each line, and an answer on each line."""

from __future__ import annotations

import contextlib
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

import msgspec

from headway.replay.files import read_lines

ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/responses")
_Body = msgspec.Raw


class _Asked(msgspec.Struct):
    custom_id: str
    url: str
    body: _Body
    method: str = "POST"


class _Streamed(msgspec.Struct):
    stream: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """What one asks: `body` for `url`; or, without a body, why it cannot be asked.

    `custom_id` is None where the line has none that can be read.
    """

    custom_id: str | None
    url: str = ""
    body: bytes = b""
    problem: str = ""


class Reply(msgspec.Struct):
    """Of HTTP, as a server would have given it."""

    status_code: int
    request_id: str
    body: _Body


class Problem(msgspec.Struct):
    code: str | None
    message: str


class Answer(msgspec.Struct):
    """A line of the output; `error` is null where the request was served."""

    id: str
    custom_id: str | None
    response: Reply | None
    error: Problem | None


def read_batch(path: str) -> list[Line]:
    """All requests of a file, which may be .gz or .zst; empty lines are left out.

    Raises ValueError with a sentence where it cannot be read, or none of its lines can be asked.
    """
    try:
        lines = list(_lines(path))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None
    if not lines:
        raise ValueError(f"{path} is empty: give a request on each line")
    if all(line.problem for line in lines):
        raise ValueError(f"{path}: none of its lines can be asked; {lines[0].problem}")
    return lines


def _lines(path: str) -> Iterator[Line]:
    seen: set[str] = set()
    for number, text in enumerate(read_lines(path), 1):
        if not text.strip():
            continue
        line = _line(text.removeprefix("\ufeff"), f"line {number}")
        if line.custom_id in seen:
            problem = f"line {number}: another line has the custom_id {line.custom_id!r}"
            line = Line(custom_id=line.custom_id, problem=problem)
        if line.custom_id is not None:
            seen.add(line.custom_id)
        yield line


def _line(text: str, where: str) -> Line:
    try:
        asked = msgspec.json.decode(text, type=_Asked)
        is_streamed = msgspec.json.decode(asked.body, type=_Streamed, strict=False).stream
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        return Line(custom_id=_id_of(text), problem=f"{where} is no request of a batch: {error}")
    problem = ""
    if asked.method != "POST" or asked.url not in ENDPOINTS:
        what = f"{asked.method} {asked.url}"[:100]
        problem = f"{where}: {what} is not served in a batch, which takes POST {_listed()}"
    elif is_streamed:
        problem = f"{where}: an answer in a file is not streamed: leave stream out"
    if problem:
        return Line(custom_id=asked.custom_id, problem=problem)
    return Line(custom_id=asked.custom_id, url=asked.url, body=bytes(asked.body))


def _listed() -> str:
    return f"{', '.join(ENDPOINTS[:-1])} or {ENDPOINTS[-1]}"


def _id_of(text: str) -> str | None:
    try:
        found = msgspec.json.decode(text)["custom_id"]
    except (msgspec.MsgspecError, UnicodeError, RecursionError, LookupError, TypeError):
        return None
    return found if isinstance(found, str) else None


def unasked(line: Line) -> Answer:
    return Answer(_new_id(), line.custom_id, None, Problem("invalid_line", line.problem))


def answered(line: Line, status: int, body: bytes) -> Answer:
    """`body`: the JSON of what was asked for, or of an error in OpenAI's shape."""
    new_id = _new_id()
    reply = Reply(status, new_id.removeprefix("batch_"), _Body(body))
    return Answer(new_id, line.custom_id, reply, None if status == 200 else _problem_in(body))


def _new_id() -> str:
    return f"batch_req_{uuid.uuid4().hex}"


class _Refusal(msgspec.Struct):
    error: Problem


def _problem_in(body: bytes) -> Problem:
    return msgspec.json.decode(body, type=_Refusal).error


class AnswerFile:
    """Writes answers in the order of their lines, each as soon as those before it have come.

    As a context it writes what is left in the end, in order, whatever was cut short. "-" is
    standard output. Raises ValueError with a sentence where it cannot be written.
    """

    def __init__(self, target: str) -> None:
        is_stdout = target == "-"
        self._file: TextIO = sys.stdout if is_stdout else Path(target).open("w")  # noqa: SIM115
        self._name = "standard output" if is_stdout else target
        self._next = 0
        self._held: dict[int, Answer] = {}

    def __enter__(self) -> AnswerFile:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            for place in sorted(self._held):
                self._write(self._held.pop(place))
        finally:
            if self._file is not sys.stdout:
                with contextlib.suppress(OSError):  # all was flushed, or that is known already
                    self._file.close()

    def add(self, place: int, answer: Answer) -> None:
        self._held[place] = answer
        while self._next in self._held:
            self._write(self._held.pop(self._next))
            self._next += 1

    def _write(self, answer: Answer) -> None:
        try:
            self._file.write(msgspec.json.encode(answer).decode() + "\n")
            self._file.flush()
        except OSError as error:
            raise ValueError(f"{self._name} cannot be written: {error.strerror}") from None
