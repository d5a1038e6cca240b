"""Stop strings and stop ids, the same on both endpoints, streaming and not."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.server.bench import LiveServer


def ask(server: LiveServer, endpoint: str, text: str, stream: bool, **fields: Any) -> dict:
    """Text, finish reason, stop reason and id of the only choice."""
    body: dict[str, Any] = {"stream": stream, "max_tokens": 40, **fields}
    if endpoint == "chat":
        path = "/v1/chat/completions"
        body["messages"] = [{"role": "user", "content": text}]
    else:
        path = "/v1/completions"
        body["prompt"] = text
    answer = httpx.post(server.url + path, json=body)
    assert answer.status_code == 200, answer.text
    chunks = frames(answer.text) if stream else [answer.json()]
    said = {"text": "", "pieces": []}
    for chunk in chunks:
        for choice in chunk["choices"]:
            part = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
            said["text"] += part.get("content") or ""
            said["pieces"].append(part.get("content") or "")
            said |= {"finish": choice["finish_reason"], "stop": choice["stop_reason"]}
        said["id"] = chunk["id"]
    return said


def frames(text: str) -> list[dict]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


BOTH = pytest.mark.parametrize("endpoint", ["completions", "chat"])
EITHER = pytest.mark.parametrize("stream", [False, True])


@BOTH
@EITHER
def test_stop_string_over_several_tokens(server: LiveServer, endpoint: str, stream: bool) -> None:
    said = ask(server, endpoint, "abcSTOPdef", stream, stop=["STOP"])
    assert said["text"] == "abc"
    assert (said["finish"], said["stop"]) == ("stop", "STOP")
    assert all("S" not in piece for piece in said["pieces"])
    mine = said["id"]
    server.wait_for(
        lambda: any(
            entry["id"].startswith(mine) and entry["reason"] == "stop"
            for entry in server.commands("WithdrawMessage")
        )
    )


@BOTH
@EITHER
def test_stop_string_shown_when_asked(server: LiveServer, endpoint: str, stream: bool) -> None:
    said = ask(server, endpoint, "abcSTOPdef", stream, stop="STOP", include_stop_str_in_output=True)
    assert said["text"] == "abcSTOP"


@BOTH
@EITHER
def test_half_a_stop_string_is_given_out_at_the_end(
    server: LiveServer, endpoint: str, stream: bool
) -> None:
    said = ask(server, endpoint, "abcST", stream, stop="STOP", max_tokens=5)
    assert (said["text"], said["finish"]) == ("abcST", "length")


@BOTH
@EITHER
def test_own_stop_id(server: LiveServer, endpoint: str, stream: bool) -> None:
    said = ask(server, endpoint, "abc!def", stream, stop_token_ids=[ord("!")])
    assert (said["text"], said["finish"], said["stop"]) == ("abc", "stop", ord("!"))


@BOTH
@EITHER
def test_half_a_character_at_the_end(server: LiveServer, endpoint: str, stream: bool) -> None:
    said = ask(server, endpoint, "a你", stream, max_tokens=3)
    assert said["text"] == "a\ufffd"


def test_end_of_sequence_has_no_stop_reason(server: LiveServer) -> None:
    said = ask(server, "chat", "abc", False)
    assert (said["text"], said["finish"], said["stop"]) == ("abc", "stop", None)


def test_ignore_eos_goes_on(server: LiveServer) -> None:
    said = ask(server, "chat", "ab", False, ignore_eos=True, max_tokens=6)
    assert (said["text"], said["finish"]) == ("abab", "length")
    shown = ask(
        server, "chat", "ab", False, ignore_eos=True, max_tokens=6, skip_special_tokens=False
    )
    assert shown["text"] == "ab<|end|>ab<|end|>"


def test_seeds_are_drawn_at_the_door(server: LiveServer) -> None:
    before = len(server.commands("SubmitMessage"))
    for fields in ({}, {}, {"seed": 5}):
        ask(server, "completions", "ab", False, max_tokens=1, **fields)
    seeds = [entry["seed"] for entry in server.commands("SubmitMessage")[before:]]
    assert len(set(seeds)) == 3
    assert seeds[2] == 5
