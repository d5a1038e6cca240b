"""Ask either endpoint, streamed or not, and read the answer the same way."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest

from tests.server.bench import LiveServer

PATHS = {"completions": "/v1/completions", "chat": "/v1/chat/completions"}
BOTH = pytest.mark.parametrize("endpoint", list(PATHS))
EITHER = pytest.mark.parametrize("stream", [False, True])


@dataclass
class Said:
    """One choice: its text in the pieces that came, and how it ended."""

    pieces: list[str] = field(default_factory=list)
    token_ids: list[list[int]] = field(default_factory=list)
    finish: str | None = None
    stop: int | str | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass
class Answer:
    headers: httpx.Headers
    chunks: list[dict[str, Any]]

    @property
    def id(self) -> str:
        return self.chunks[0]["id"]

    @property
    def usage(self) -> dict[str, Any]:
        return self.chunks[-1]["usage"]

    def choice(self, index: int = 0) -> Said:
        said = Said()
        for chunk in self.chunks:
            for choice in chunk["choices"]:
                if choice["index"] == index:
                    _add(said, choice)
        return said


def _add(said: Said, choice: dict[str, Any]) -> None:
    part = choice.get("delta") or choice.get("message") or {"content": choice.get("text")}
    said.pieces.append(part.get("content") or "")
    said.token_ids.append(choice.get("token_ids") or [])
    said.finish, said.stop = choice["finish_reason"], choice["stop_reason"]


def body_of(endpoint: str, prompt: Any, **fields: Any) -> dict[str, Any]:
    if endpoint == "chat":
        return {"messages": [{"role": "user", "content": prompt}], **fields}
    return {"prompt": prompt, **fields}


def ask(
    server: LiveServer,
    endpoint: str,
    prompt: Any,
    *,
    stream: bool = False,
    headers: dict[str, str] | None = None,
    client: httpx.Client | None = None,
    **fields: Any,
) -> Answer:
    """An answer with status 200."""
    body = body_of(endpoint, prompt, stream=stream, **fields)
    post = httpx.post if client is None else client.post
    got = post(server.url + PATHS[endpoint], json=body, headers=headers)
    assert got.status_code == 200, got.text
    return Answer(got.headers, frames(got.text) if stream else [got.json()])


def refused(
    server: LiveServer,
    endpoint: str,
    prompt: Any,
    *,
    headers: dict[str, str] | None = None,
    **fields: Any,
) -> tuple[int, dict[str, Any], httpx.Headers]:
    """Status, error and headers of an answer that is none."""
    url = server.url + PATHS[endpoint]
    got = httpx.post(url, json=body_of(endpoint, prompt, **fields), headers=headers)
    return got.status_code, got.json()["error"], got.headers


def frames(text: str) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def last_request(server: LiveServer) -> dict[str, Any]:
    """What the engine was asked last."""
    return server.commands("SubmitMessage")[-1]["request"]
