"""Server-sent events of a completion: which of them bring a token, and what is said at the end."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from headway.bench.http1 import BadAnswerError, printable, shown

_MOST_EVENT_BYTES = 1 << 22


class EventReader:
    """Bytes in, the data of whole events out."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Raises BadAnswerError for an event without end."""
        if self._buffer:
            data = self._buffer + data
        if b"\r" in data:
            data = data.replace(b"\r\n", b"\n")
        *frames, self._buffer = data.split(b"\n\n")
        if len(self._buffer) > _MOST_EVENT_BYTES:
            raise BadAnswerError("an event does not end")
        found = []
        for frame in frames:
            if frame.startswith(b"data: ") and b"\n" not in frame:
                found.append(frame[6:])
            elif (event := _data_of(frame)) is not None:
                found.append(event)
        return found

    @property
    def is_between_events(self) -> bool:
        return not self._buffer.strip()


def _data_of(frame: bytes) -> bytes | None:
    """Of a frame of several lines; None for comments, as servers send to keep a connection."""
    lines = [line[5:].removeprefix(b" ") for line in frame.split(b"\n") if line[:5] == b"data:"]
    return b"\n".join(lines) if lines else None


class _Delta(msgspec.Struct):
    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: Any = None

    @property
    def has_text(self) -> bool:
        return bool(self.content or self.reasoning_content or self.reasoning or self.tool_calls)


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None

    @property
    def brings_token(self) -> bool:
        """So does a text held back; not a role, which comes before, nor a reason, after."""
        if self.delta is None:
            return bool(self.text) or self.finish_reason is None
        is_silent = self.finish_reason is not None or self.delta.role is not None
        return self.delta.has_text or not is_silent


_Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 31)]


class Usage(msgspec.Struct):
    prompt_tokens: _Count | None = None
    completion_tokens: _Count | None = None


class Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: Usage | None = None
    error: Any = None

    @property
    def brings_token(self) -> bool:
        return any(choice.brings_token for choice in self.choices)


_decode = msgspec.json.Decoder(Event).decode


def read_event(data: bytes) -> Event:
    """Raises BadAnswerError for what is no event of a completion."""
    try:
        return _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadAnswerError(f"not an event of a completion: {shown(data)}") from None


def message_of(body: bytes) -> str:
    """What an error's body says, in whichever of the usual shapes."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return shown(body)
    for name in ("error", "message", "detail"):
        if isinstance(value, dict) and name in value:
            value = value[name]
    return printable(value[:300]) if isinstance(value, str) else shown(body)
