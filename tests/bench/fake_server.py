"""An OpenAI-compatible server as an ASGI application: it says what was planted."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

WORDS = ("one", " two", " three", " four", " five", " six", " seven", " eight")
SURE, LESS = -0.25, -1.5  # logprobs of the token taken and of its rival


@dataclass
class Planted:
    """At `index` this prompt is answered with `rival`, wherever `when(in_flight)` says so."""

    index: int
    rival: str = " RIVAL"
    when: Callable[[int], bool] = lambda in_flight: in_flight > 1


@dataclass
class FakeServer:
    """Nobody but the probe is answered until `min_in_flight` are in flight."""

    planted: dict[str, Planted] = field(default_factory=dict)
    failing: dict[str, tuple[int, Any]] = field(default_factory=dict)
    refused_fields: tuple[str, ...] = ()
    ignored_fields: tuple[str, ...] = ()
    endpoints: tuple[str, ...] = ("chat", "completions")
    drift_per_request: float = 0.0
    min_in_flight: int = 1
    in_flight: int = 0
    fewest_in_flight: dict[str, int] = field(default_factory=dict)
    bodies: list[dict[str, Any]] = field(default_factory=list)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        body = await _read(receive)
        if body is None:
            return
        if scope["path"] == "/v1/models":
            status, answer = 200, {"data": [{"id": "fake"}]}
        else:
            status, answer = await self._answer(scope["path"], json.loads(body))
        await _send(send, status, answer)

    async def _answer(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        endpoint = "chat" if "chat" in path else "completions"
        if endpoint not in self.endpoints:
            return 404, {"error": {"message": "no such endpoint"}}
        refused = [name for name in self.refused_fields if name in body]
        if refused:
            return 400, {"error": {"message": f"unknown field {refused[0]}"}}
        self.bodies.append(body)
        self.in_flight += 1
        try:
            return await self._said(endpoint, body)
        finally:
            self.in_flight -= 1

    async def _said(self, endpoint: str, body: dict[str, Any]) -> tuple[int, Any]:
        asked = body["messages"][-1]["content"] if endpoint == "chat" else body["prompt"]
        while asked != "Hello" and self.in_flight < self.min_in_flight:
            await asyncio.sleep(0)
        in_flight = self.in_flight
        self.fewest_in_flight[asked] = min(in_flight, self.fewest_in_flight.get(asked, in_flight))
        for _ in range(3):  # somebody else's turn
            await asyncio.sleep(0)
        if asked in self.failing:
            return self.failing[asked]
        kept = {name: body.get(name) for name in body if name not in self.ignored_fields}
        return 200, self._choice(endpoint, kept, self.planted.get(asked), in_flight)

    def _choice(
        self, endpoint: str, body: dict[str, Any], planted: Planted | None, in_flight: int
    ) -> dict[str, Any]:
        said = list(WORDS[: body["max_tokens"]])
        rivals = [" nothing"] * len(said)
        if planted and planted.index < len(said):
            rivals[planted.index] = planted.rival
            if planted.when(in_flight):
                said[planted.index], rivals[planted.index] = planted.rival, said[planted.index]
        is_ids = body.get("return_tokens_as_token_ids")
        name = (lambda word: f"token_id:{sum(word.encode())}") if is_ids else str
        sure = SURE - self.drift_per_request * len(self.bodies)
        positions = [
            (name(word), sure, {name(word): sure, name(rival): LESS})
            for word, rival in zip(said, rivals, strict=True)
        ]
        choice: dict[str, Any] = {"index": 0, "finish_reason": "length"}
        if endpoint == "chat":
            choice["message"] = {"role": "assistant", "content": "".join(said)}
            choice["logprobs"] = _chat_logprobs(positions) if body.get("logprobs") else None
        else:
            choice["text"] = "".join(said)
            choice["logprobs"] = _logprobs(positions) if body.get("logprobs") else None
        return {"choices": [choice]}


def _chat_logprobs(positions: Any) -> dict[str, Any]:
    return {
        "content": [
            {
                "token": token,
                "logprob": logprob,
                "top_logprobs": [{"token": t, "logprob": p} for t, p in top.items()],
            }
            for token, logprob, top in positions
        ]
    }


def _logprobs(positions: Any) -> dict[str, Any]:
    return {
        "tokens": [token for token, _, _ in positions],
        "token_logprobs": [logprob for _, logprob, _ in positions],
        "top_logprobs": [top for _, _, top in positions],
    }


async def _read(receive: Any) -> bytes | None:
    """None for a client that has gone, as strangers do at the end."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body += message.get("body", b"")
        if not message.get("more_body"):
            return body


async def _send(send: Any, status: int, answer: Any) -> None:
    body = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
    await send({"type": "http.response.start", "status": status, "headers": []})
    await send({"type": "http.response.body", "body": body})
