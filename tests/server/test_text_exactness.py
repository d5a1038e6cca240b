"""Deltas joined are the full decode: any bytes, any stop strings, both endpoints, streamed or not.

The engine says what the request forces, one byte a token: every character and every stop string is
split wherever it can be.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import httpx
import pytest

from headway.text.stop_strings import first_stop
from tests.server.asking import BOTH, EITHER, Said, ask
from tests.server.bench import LiveServer, byte_tokenizer, live_server

NUM_STRINGS = 500
ALPHABETS = (
    "你好世界中文字符한국어일이삼日本語テスト",
    "👩‍👩‍👧‍👦👨🏽‍🚀🏳️‍🌈🙂🇩🇪",
    "éàẅ\u0301\u0302\u0327n\u0303ก็ि",
    "plain ascii, \t\n",
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("exact"), "--trace-replay") as live:
        yield live


def random_bytes(rng: random.Random) -> bytes:
    """Characters of every width, some of them cut, and bytes that begin none."""
    raw = b"".join(rng.choice(rng.choice(ALPHABETS)).encode() for _ in range(rng.randint(1, 14)))
    for _ in range(rng.choice((0, 0, 1, 3))):
        at = rng.randrange(len(raw) + 1)
        raw = (
            raw[:at] + rng.choice((b"\xff", b"\xfe\xff", b"\xe4\xbd", b"\x80", b"\xf0")) + raw[at:]
        )
    return raw


STRINGS = [random_bytes(random.Random(seed)) for seed in range(NUM_STRINGS)]


@BOTH
@EITHER
def test_five_hundred_strings(server: LiveServer, endpoint: str, stream: bool) -> None:
    """A quarter of them each way."""
    tokenizer, quarter = byte_tokenizer(), 2 * (endpoint == "chat") + stream
    with httpx.Client() as client:
        for raw in STRINGS[quarter::4]:
            fields = {"trace_decode_token_ids": list(raw), "ignore_eos": True}
            said = ask(server, endpoint, "x", stream=stream, client=client, **fields).choice()
            assert said.text == raw.decode("utf-8", "replace")
            assert said.text == tokenizer.decode(raw)


def stops_of(rng: random.Random, text: str) -> list[str]:
    """Some that occur, some that only begin to."""
    stops = []
    for _ in range(rng.randint(1, 4)):
        begin = rng.randrange(len(text))
        stop = text[begin : begin + rng.randint(1, 6)]
        stops.append(stop if rng.random() < 0.5 else stop + "§")
    return stops


@BOTH
@EITHER
def test_stop_strings_are_never_shown(server: LiveServer, endpoint: str, stream: bool) -> None:
    with httpx.Client() as client:
        for seed in range(60):
            rng = random.Random(seed)
            text = "".join(rng.choice("abcDE你🙂") for _ in range(rng.randint(4, 30)))
            stops = stops_of(rng, text)
            fields = {"trace_decode_token_ids": list(text.encode()), "ignore_eos": True}
            answer = ask(
                server,
                endpoint,
                "x",
                stream=stream,
                client=client,
                stop=stops,
                return_token_ids=True,
                **fields,
            )
            check_stopped(answer.choice(), text, stops)


def check_stopped(said: Said, text: str, stops: list[str]) -> None:
    found = first_stop(text, stops)
    if found is None:
        assert (said.text, said.finish, said.stop) == (text, "length", None)
    else:
        assert (said.text, said.finish, said.stop) == (text[: found[0]], "stop", found[1])
    shown, tokens = "", b""
    for piece, token_ids in zip(said.pieces[:-1], said.token_ids[:-1], strict=True):
        shown, tokens = shown + piece, tokens + bytes(token_ids)
        # Only what may still become a stop, or is half a character, is held back.
        whole = tokens.decode("utf-8", "ignore")
        held = whole.removeprefix(shown)
        assert whole.startswith(shown)
        assert not held or any(stop.startswith(held) and stop != held for stop in stops)


@EITHER
def test_bytes_that_begin_nothing_do_not_stall(server: LiveServer, stream: bool) -> None:
    raw = b"\xff\xfe" + b"ok"
    said = ask(server, "chat", "x", stream=stream, trace_decode_token_ids=list(raw)).choice()
    assert said.text == "\ufffd\ufffdok"
    if stream:
        assert said.pieces[1] == "\ufffd"  # with its own token
