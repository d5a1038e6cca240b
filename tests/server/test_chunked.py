"""The short way for chunks writes what h11 writes."""

from __future__ import annotations

import h11
import pytest

from headway.server.connections import ChunkedConnection

CHUNKED = [(b"transfer-encoding", b"chunked")]
SIZED = [(b"content-length", b"5")]


def talk(connection: h11.Connection, headers: list[tuple[bytes, bytes]], *pieces: bytes) -> bytes:
    connection.receive_data(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
    while connection.next_event() is not h11.PAUSED and connection.their_state is not h11.DONE:
        pass
    events = [h11.Response(status_code=200, headers=headers)]
    events += [h11.Data(data=piece) for piece in pieces]
    sent = [connection.send(event) for event in [*events, h11.EndOfMessage()]]
    connection.start_next_cycle()
    return b"".join(part or b"" for part in sent)


@pytest.mark.parametrize(
    ("headers", "pieces"),
    [
        (CHUNKED, (b"data: a\n\n", b"", b"x" * 70_000)),
        (CHUNKED, ()),
        ([], (b"no length was told", b"so h11 cuts it into chunks")),
        (SIZED, (b"he", b"llo")),
    ],
)
def test_bytes_are_those_of_h11(
    headers: list[tuple[bytes, bytes]], pieces: tuple[bytes, ...]
) -> None:
    ours, plain = ChunkedConnection(h11.SERVER), h11.Connection(h11.SERVER)
    for _ in range(2):  # a connection that is kept serves the next answer the same way
        assert talk(ours, headers, *pieces) == talk(plain, headers, *pieces)


def test_an_answer_with_a_length_is_still_checked() -> None:
    connection = ChunkedConnection(h11.SERVER)
    talk(connection, CHUNKED, b"first")
    with pytest.raises(h11.LocalProtocolError, match="Content-Length"):
        talk(connection, SIZED, b"too long for it")
