"""One answer as its bytes come: events, their times, and how it ended."""

from __future__ import annotations

from array import array

from headway.bench.event_stream import EventReader, Usage, message_of, read_event
from headway.bench.http1 import AnswerReader, BadAnswerError, shown
from headway.bench.outcome import Ending

_MOST_ERROR_BYTES = 1 << 16
_MOST_TOKENS = 1 << 20


class Answer:
    """`ending` is None until it has ended, which `take` and `close` bring about."""

    def __init__(self) -> None:
        self.reader = AnswerReader()
        self.times_ns = array("q")
        self.usage: Usage | None = None
        self.ending: Ending | None = None
        self.message = ""
        self.heard_ns = 0  # when its last event came: not the comments that keep connections open
        self._events = EventReader()
        self._error_body = b""

    def take(self, data: bytes, at_ns: int) -> None:
        try:
            body = self.reader.feed(data)
            if self.ending is not None:  # the framing's end, behind that of the stream
                return
            if self.reader.status != 200:
                self._take_error(body)
            else:
                self._take_events(body, at_ns)
        except BadAnswerError as error:
            self.finish(Ending.GARBAGE, str(error))

    def close(self) -> None:
        """The server has closed the connection."""
        if self.ending is not None:
            return
        try:
            self.reader.end()
            self._end_of_body()
        except BadAnswerError as error:
            self.finish(Ending.BROKEN, str(error))

    def finish(self, ending: Ending, message: str = "") -> None:
        """The first ending counts."""
        if self.ending is None:
            self.ending, self.message = ending, message

    def _take_error(self, body: bytes) -> None:
        if not self.reader.status:
            return
        self._error_body += body[: _MOST_ERROR_BYTES - len(self._error_body)]
        if self.reader.is_whole or len(self._error_body) >= _MOST_ERROR_BYTES:
            self.finish(Ending.REFUSED, message_of(self._error_body))

    def _take_events(self, body: bytes, at_ns: int) -> None:
        for data in self._events.feed(body):
            self.heard_ns = at_ns
            if data == b"[DONE]":
                self._done()
                return
            event = read_event(data)
            if event.error is not None:
                self.finish(Ending.ERROR, message_of(data))
                return
            if event.usage is not None:
                self.usage = event.usage
            if event.brings_token:
                self.times_ns.append(at_ns)
                if len(self.times_ns) > _MOST_TOKENS:
                    raise BadAnswerError("the stream does not end")
        if self.reader.is_whole:
            self._end_of_body()

    def _done(self) -> None:
        if self.times_ns:
            self.finish(Ending.SERVED)
        else:
            self.finish(Ending.GARBAGE, "the stream ended without a token")

    def _end_of_body(self) -> None:
        """Without [DONE], which every event stream of a completion ends with."""
        if self.reader.status != 200:
            self.finish(Ending.REFUSED, message_of(self._error_body))
            return
        kind = self.reader.headers.get("content-type", "nothing")
        if kind.partition(";")[0].strip().lower() != "text/event-stream":
            self.finish(Ending.GARBAGE, f"the answer is {shown(kind.encode())}, not events")
        else:
            self.finish(Ending.BROKEN, "the stream ended without [DONE]")
