"""HTTP answers in pieces of any size, in each framing; and what is none."""

from __future__ import annotations

import pytest

from headway.bench.answer import Answer
from headway.bench.event_stream import EventReader, message_of, read_event
from headway.bench.http1 import AnswerReader, BadAnswerError
from headway.bench.outcome import Ending

BODY = b"data: one\n\ndata: two\n\n"
FRAMINGS = {
    "length": b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(BODY), BODY),
    "chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"5\r\ndata:\r\n%x;name=value\r\n%s\r\n0\r\nX-Trailer: 1\r\n\r\n" % (len(BODY) - 5, BODY[5:]),
    "continued": b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"
    % (len(BODY), BODY),
}


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_pieces_of_any_size_are_the_same_body(framing: str, size: int) -> None:
    raw, reader = FRAMINGS[framing], AnswerReader()
    body = b"".join(reader.feed(raw[at : at + size]) for at in range(0, len(raw), size))
    assert body == BODY
    assert reader.status == 200
    assert reader.is_whole
    assert reader.may_stay_open


def test_a_body_may_end_with_the_connection() -> None:
    reader = AnswerReader()
    body = reader.feed(b"HTTP/1.0 200 OK\r\n\r\nabc") + reader.feed(b"def")
    assert not reader.is_whole
    reader.end()
    assert (body, reader.is_whole, reader.may_stay_open) == (b"abcdef", True, False)


@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_connection_that_closes_too_early_is_told(framing: str) -> None:
    raw = FRAMINGS[framing]
    for cut in range(len(raw)):
        reader = AnswerReader()
        reader.feed(raw[:cut])
        with pytest.raises(BadAnswerError, match="the connection closed"):
            reader.end()


@pytest.mark.parametrize(
    "raw",
    [
        b"SSH-2.0-OpenSSH\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 99999999999999999999 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0x5\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"5" * 2000,
        b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000,
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n" + b"x" * 70_000,
    ],
)
def test_what_is_no_answer_is_told(raw: bytes) -> None:
    with pytest.raises(BadAnswerError):
        AnswerReader().feed(raw)


def test_events_come_whole_whatever_their_pieces_and_line_ends() -> None:
    raw = b": hello\n\ndata: a\n\nevent: x\ndata: b\ndata: c\n\ndata:d\r\n\r\n"
    for size in (1, 4, 100):
        reader = EventReader()
        found = [one for at in range(0, len(raw), size) for one in reader.feed(raw[at : at + size])]
        assert found == [b"a", b"b\nc", b"d"]


def test_an_event_without_end_is_told() -> None:
    with pytest.raises(BadAnswerError, match="does not end"):
        EventReader().feed(b"x" * 5_000_000)


@pytest.mark.parametrize(
    ("event", "brings"),
    [
        (b'{"choices": [{"text": " a", "finish_reason": null}]}', True),
        (b'{"choices": [{"text": "", "finish_reason": null}]}', True),
        (b'{"choices": [{"text": "", "finish_reason": "stop"}]}', False),
        (b'{"choices": [{"text": "a", "finish_reason": "length"}]}', True),
        (b'{"choices": [{"delta": {"role": "assistant", "content": ""}}]}', False),
        (b'{"choices": [{"delta": {"role": "assistant", "content": "a"}}]}', True),
        (b'{"choices": [{"delta": {"content": ""}, "finish_reason": null}]}', True),
        (b'{"choices": [{"delta": {}, "finish_reason": "stop"}]}', False),
        (b'{"choices": [{"delta": {"reasoning_content": "hm"}}]}', True),
        (b'{"choices": [], "usage": {"completion_tokens": 3}}', False),
    ],
)
def test_which_events_bring_a_token(event: bytes, brings: bool) -> None:
    assert read_event(event).brings_token is brings


@pytest.mark.parametrize(
    "event",
    [
        b"",
        b"[]",
        b"null",
        b'{"choices": 7}',
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"choices": [], "usage": {"completion_tokens": 1e99}}',
        b'{"choices": [], "usage": {"completion_tokens": -1}}',
    ],
)
def test_events_of_another_kind_are_told(event: bytes) -> None:
    with pytest.raises(BadAnswerError):
        read_event(event)


def test_any_number_of_interim_answers_come_before_the_answer() -> None:
    reader = AnswerReader()
    assert reader.feed(b"HTTP/1.1 102 Still\r\n\r\n" * 50_000) == b""
    assert reader.status == 0
    assert reader.feed(FRAMINGS["length"]) == BODY


@pytest.mark.parametrize("body", [b'{"error": {"message": "\\u001b[2Jno"}}', b"\x1b[2Jno"])
def test_what_an_error_says_cannot_move_the_cursor(body: bytes) -> None:
    assert "no" in message_of(body)
    assert message_of(body).isprintable()


def test_a_stream_of_more_tokens_than_anybody_asks_for_is_cut() -> None:
    answer = Answer()
    answer.take(b"HTTP/1.1 200 OK\r\n\r\n", 0)
    tokens = b'data: {"choices": [{"text": "a"}]}\n\n' * (1 << 16)
    for _ in range(17):
        answer.take(tokens, 1)
    assert (answer.ending, answer.message) == (Ending.GARBAGE, "the stream does not end")
    assert len(answer.times_ns) == (1 << 20) + 1


def test_comments_are_no_sign_of_life() -> None:
    answer = Answer()
    answer.take(b"HTTP/1.1 200 OK\r\n\r\n", 1)
    answer.take(b'data: {"choices": [{"text": "a"}]}\n\n', 2)
    answer.take(b": ping\n\n", 3)
    assert answer.heard_ns == 2
