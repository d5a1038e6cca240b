"""A server's answer as it comes, for the commands that talk in a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from headway.bench.event_stream import EventReader
from headway.bench.get import no_answer
from headway.bench.http1 import BadAnswerError, printable, shown
from headway.bench.target import Target
from headway.bench.verify.answers import refusal_text

if TYPE_CHECKING:
    import httpx

_CONNECT_TIMEOUT_S = 10.0
_SILENCE_S = 300.0  # a long prompt on a slow machine says nothing for minutes
_MAX_REFUSAL_BYTES = 1 << 16


# Control characters, and those that turn the direction of what follows.
_OBEYED = {
    code: "" if code == ord("\r") else chr(code).encode("unicode_escape").decode()
    for code in (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    if chr(code) not in "\n\t"
}


class AnswerError(Exception):
    """The answer cannot go on; the message is one sentence."""


class _Delta(msgspec.Struct):
    content: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None


class _Problem(msgspec.Struct):
    message: str


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    error: _Problem | None = None


def stream_text(
    target: Target, path: str, body: Mapping[str, Any], key: str | None
) -> Iterator[str]:
    """The pieces of the first choice. Raises AnswerError."""
    import httpx

    headers = {"accept-encoding": "identity"}
    if key:
        headers["authorization"] = f"Bearer {key}"
    timeout = httpx.Timeout(_SILENCE_S, connect=_CONNECT_TIMEOUT_S)
    try:
        with (
            httpx.Client(verify=target.tls or False, timeout=timeout, trust_env=False) as client,
            client.stream(
                "POST", target.url + path, json={**body, "stream": True}, headers=headers
            ) as reply,
        ):
            if reply.status_code != 200:
                raise AnswerError(refusal_text(reply.status_code, _beginning(reply)))
            kind = reply.headers.get("content-type", "nothing")
            if kind.partition(";")[0].strip().lower() != "text/event-stream":
                raise AnswerError(f"{target.url} answers with {shown(kind.encode())}, no events")
            yield from _texts(reply.iter_bytes())
    except httpx.ReadTimeout:
        raise AnswerError(no_answer(target.url, f"nothing came for {_SILENCE_S:g} s")) from None
    except (httpx.HTTPError, UnicodeError) as error:  # a key or a text that cannot be sent
        reason = printable(str(error)) or type(error).__name__
        raise AnswerError(no_answer(target.url, reason)) from None


def _beginning(reply: httpx.Response) -> bytes:
    body = b""
    for piece in reply.iter_bytes():
        body += piece
        if len(body) > _MAX_REFUSAL_BYTES:
            break
    return body


def _texts(pieces: Iterator[bytes]) -> Iterator[str]:
    reader = EventReader()
    try:
        for piece in pieces:
            for event in reader.feed(piece):
                if event == b"[DONE]":
                    return
                yield _text(msgspec.json.decode(event, type=_Chunk))
        raise AnswerError("the answer broke off: its end did not come")
    except (BadAnswerError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise AnswerError(f"the answer is not what the API says: {error}") from None


def for_terminal(piece: str) -> str:
    """With nothing that a terminal obeys but ends of lines and tabs; unchanged in a pipe."""
    return piece.translate(_OBEYED) if sys.stdout.isatty() else piece


def _text(chunk: _Chunk) -> str:
    if chunk.error is not None:
        raise AnswerError(printable(chunk.error.message))
    if not chunk.choices:
        return ""
    choice = chunk.choices[0]
    return choice.text or (choice.delta.content if choice.delta else None) or ""
