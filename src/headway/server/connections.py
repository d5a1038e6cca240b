"""One connection, watched: clients that are slow to ask, or to read, are cut."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import sys
import termios
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import STATUS_PHRASES, H11Protocol

from headway.server.errors import ApiError, Problem
from headway.server.taking import UNTAKEN

# A request may take longer by the time that its bytes take at this rate: a large body over a slow
# line is honest, a byte a second is not.
MIN_BYTES_PER_S = 16 << 10
_log = logging.getLogger("headway")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Seconds, connections, bytes."""

    read_timeout_s: float = 30.0
    write_timeout_s: float = 30.0
    max_connections: int = 4096


class ChunkedConnection(h11.Connection):
    """h11 with a short way for the chunks of a stream: one is sent for every token."""

    _is_chunked = False

    def send(self, event: h11.Event) -> bytes | None:  # type: ignore[override]
        if self._is_chunked and type(event) is h11.Data:
            return b"%x\r\n%b\r\n" % (len(event.data), event.data) if event.data else b""
        output = super().send(event)
        headers = output if output and isinstance(event, h11.Response) else b""
        self._is_chunked = b"\r\ntransfer-encoding: chunked\r\n" in headers.lower()
        return output


class WatchedProtocol(H11Protocol):
    """What uvicorn leaves open: requests that never end, readers that never read, error bodies."""

    limits = ConnectionLimits()
    _read_timer: asyncio.TimerHandle | None = None
    _write_timer: asyncio.TimerHandle | None = None
    _began_s = 0.0
    _num_bytes = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        limit = self.config.h11_max_incomplete_event_size
        assert limit is not None, "the server always sets it"
        self.conn = ChunkedConnection(h11.SERVER, limit)
        self.app_state = {**self.app_state, UNTAKEN: self.num_untaken_bytes}

    def num_untaken_bytes(self) -> int:
        """Written, and not acknowledged by the client's system; 0 once it is closed."""
        if self.transport.is_closing():
            return 0
        held = self.transport.get_write_buffer_size()
        try:
            queue = fcntl.ioctl(self.transport.get_extra_info("socket"), termios.TIOCOUTQ, bytes(4))
        except OSError:  # this system does not tell
            return held
        return held + int.from_bytes(queue, sys.byteorder)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > self.limits.max_connections:
            message = f"{self.limits.max_connections} connections are open and no more are taken"
            self._end_with(ApiError(Problem.TOO_MANY_CONNECTIONS, message, retry_after_s=1))
        else:
            self._begin_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_reading()
        self.resume_writing()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        self._num_bytes += len(data)
        super().data_received(data)
        self._watch_reading()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch_reading()

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._write_timer is None:
            wait_s = self.limits.write_timeout_s
            self._write_timer = self.loop.call_later(wait_s, self._cut_reader)

    def resume_writing(self) -> None:
        if self._write_timer is not None:
            self._write_timer.cancel()
            self._write_timer = None
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """uvicorn calls this for what is no HTTP."""
        is_long = self.conn.their_state is h11.ERROR and self._is_header_too_long()
        problem = Problem.HEADERS_TOO_LARGE if is_long else Problem.INVALID_HTTP
        message = "the headers are too long" if is_long else "this is not a valid HTTP request"
        self._end_with(ApiError(problem, message))

    def _is_header_too_long(self) -> bool:
        limit = self.config.h11_max_incomplete_event_size
        return limit is not None and len(self.conn.trailing_data[0]) > limit

    def _watch_reading(self) -> None:
        if self._is_client_asking():
            if self._read_timer is None:
                self._begin_reading()
        else:
            self._end_reading()

    def _is_client_asking(self) -> bool:
        """Whether a request has begun to come in and is not complete."""
        if self.transport.is_closing():
            return False
        state = self.conn.their_state
        return state is h11.SEND_BODY or (state is h11.IDLE and bool(self.conn.trailing_data[0]))

    def _begin_reading(self) -> None:
        self._began_s = self.loop.time()
        self._num_bytes = 0
        self._read_timer = self.loop.call_later(self.limits.read_timeout_s, self._check_reading)

    def _end_reading(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _check_reading(self) -> None:
        self._read_timer = None
        allowed_s = self.limits.read_timeout_s + self._num_bytes / MIN_BYTES_PER_S
        left_s = self._began_s + allowed_s - self.loop.time()
        if left_s > 0.001:
            self._read_timer = self.loop.call_later(left_s, self._check_reading)
        elif self._is_client_asking():
            seconds = self.limits.read_timeout_s
            message = f"the request was not complete after {seconds:g} s"
            self._end_with(ApiError(Problem.REQUEST_TIMEOUT, message))
        else:
            self.transport.close()  # it never said anything

    def _cut_reader(self) -> None:
        _log.info("A client does not read its answer: cut after %g s", self.limits.write_timeout_s)
        self.transport.abort()

    def _end_with(self, error: ApiError) -> None:
        """Answer below the application, where no answer has begun, and hang up."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE, h11.ERROR):
            has_begun = self.cycle is not None and self.cycle.response_started
            if not has_begun or self.cycle.response_complete:
                self.transport.write(_raw_answer(error))
        self.transport.close()


def _raw_answer(error: ApiError) -> bytes:
    body = json.dumps(error.body()).encode()
    headers = {"content-type": "application/json", "content-length": str(len(body))}
    headers |= {"connection": "close", **error.headers}
    lines = [f"HTTP/1.1 {error.status} {STATUS_PHRASES[error.status].decode()}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def watched(limits: ConnectionLimits) -> type[WatchedProtocol]:
    """The protocol class for uvicorn, which makes the instances itself."""
    return type("WatchedProtocol", (WatchedProtocol,), {"limits": limits})
