"""HTTP/1.1 answers, read as they come: a status, headers, and a body in any of its three framings.

Of a server's bytes nothing is taken on trust: what is malformed or endless raises BadAnswerError.
"""

from __future__ import annotations

from collections.abc import Callable

_MOST_HEAD_BYTES = 1 << 16
_MOST_SIZE_LINE_BYTES = 1 << 10
_MOST_DIGITS = 15  # of a length or a chunk's size
_HEX = frozenset(b"0123456789abcdefABCDEF")


class BadAnswerError(Exception):
    """What came is not an HTTP answer, or not an event stream; the message is a clause."""


class AnswerReader:
    """One answer. `feed` returns what of the body is in the bytes given.

    `status` is 0 until the head has come; `is_whole` once the body has ended; `rest` are bytes
    behind the answer's end.
    """

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.is_whole = False
        self.rest = b""
        self._buffer = b""
        self._left = 0  # bytes of the body, or of a chunk
        self._read: Callable[[], bytes] = self._read_head

    def feed(self, data: bytes) -> bytes:
        """Raises BadAnswerError."""
        if self.is_whole:
            self.rest += data
            return b""
        self._buffer = self._buffer + data if self._buffer else data
        body = self._read()
        if self.is_whole:
            self.rest, self._buffer = self._buffer, b""
        return body

    def end(self) -> None:
        """The connection has closed. Raises BadAnswerError if something is missing."""
        if self._read == self._read_to_the_end:
            self.is_whole = True
        if not self.is_whole:
            what = "in the middle of the answer" if self.status else "before an answer"
            raise BadAnswerError(f"the connection closed {what}")

    @property
    def may_stay_open(self) -> bool:
        """Whether another request may follow on the same connection."""
        is_framed = self._read != self._read_to_the_end
        closes = "close" in self.headers.get("connection", "").lower()
        return self.is_whole and is_framed and not closes and not self.rest

    def _read_head(self) -> bytes:
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            lines = self._buffer[:end].split(b"\r\n")
            self._buffer = self._buffer[end + 4 :]
            status = _status(lines[0])
            if status >= 200:  # else more is to come: the answer itself
                self.status = status
                self.headers = dict(map(_header, lines[1:]))
                return self._begin_body()
        if len(self._buffer) > _MOST_HEAD_BYTES:
            raise BadAnswerError("the answer's head does not end")
        if not b"HTTP/1.".startswith(self._buffer[:7]):
            raise BadAnswerError(f"not HTTP: {shown(self._buffer)}")
        return b""

    def _begin_body(self) -> bytes:
        if self.headers.get("transfer-encoding", "identity").lower() != "identity":
            self._read = self._read_chunks
        elif self.status in (204, 304):
            self.is_whole = True
            return b""
        elif "content-length" in self.headers:
            self._left = _number(self.headers["content-length"].encode(), b"0123456789", 10)
            self._read = self._read_length
        else:
            self._read = self._read_to_the_end
        return self._read()

    def _read_to_the_end(self) -> bytes:
        body, self._buffer = self._buffer, b""
        return body

    def _read_length(self) -> bytes:
        body = self._buffer[: self._left]
        self._buffer = self._buffer[self._left :]
        self._left -= len(body)
        self.is_whole = not self._left
        return body

    def _read_chunks(self) -> bytes:
        """`_left` counts a chunk's bytes with the line end behind them."""
        buffer, at, left = self._buffer, 0, self._left
        found: list[bytes] = []
        while at < len(buffer):
            if left:
                piece = buffer[at : at + left]
                if left > 2:
                    found.append(piece[: left - 2])
                at += len(piece)
                left -= len(piece)
                continue
            end = buffer.find(b"\r\n", at)
            if end < 0:
                break
            size = _chunk_size(buffer[at:end])
            at = end + 2
            if not size:
                self._read = self._read_trailers
                self._buffer = buffer[at:]
                self._read_trailers()
                return b"".join(found)
            left = size + 2
        self._buffer, self._left = buffer[at:], left
        if not left and len(self._buffer) > _MOST_SIZE_LINE_BYTES:
            raise BadAnswerError("a chunk's size does not end")
        return found[0] if len(found) == 1 else b"".join(found)

    def _read_trailers(self) -> bytes:
        while (end := self._buffer.find(b"\r\n")) >= 0:
            self._buffer = self._buffer[end + 2 :]
            if end == 0:
                self.is_whole = True
                return b""
        if len(self._buffer) > _MOST_HEAD_BYTES:
            raise BadAnswerError("the trailers do not end")
        return b""


def shown(data: bytes) -> str:
    """What people can read of it, cut short."""
    text = data[:80].decode("utf-8", "replace")
    return repr(text + ("…" if len(data) > 80 else ""))


def printable(text: str) -> str:
    """With what would move a terminal's cursor or hide itself written out."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _status(line: bytes) -> int:
    parts = line.split(b" ", 2)
    if not parts[0].startswith(b"HTTP/1.") or len(parts) < 2 or not parts[1].isdigit():
        raise BadAnswerError(f"not HTTP: {shown(line)}")
    status = int(parts[1][:4])
    if not 100 <= status <= 999:
        raise BadAnswerError(f"not a status: {shown(line)}")
    return status


def _header(line: bytes) -> tuple[str, str]:
    name, _, value = line.decode("latin-1").partition(":")
    return name.strip().lower(), value.strip()


def _chunk_size(line: bytes) -> int:
    return _number(line.partition(b";")[0].strip(), _HEX, 16)


def _number(digits: bytes, allowed: bytes | frozenset[int], base: int) -> int:
    if not digits or len(digits) > _MOST_DIGITS or not set(digits) <= set(allowed):
        raise BadAnswerError(f"not a length: {shown(digits)}")
    return int(digits, base)
