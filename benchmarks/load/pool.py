"""Forty distinct requests whose answers are known: each was served alone first."""

from __future__ import annotations

import json
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.load.exchange import BadAnswerError, Exchange
from benchmarks.load.server import Server

_WORDS = (  # noqa: SIM905
    "river stone market winter engine letter garden mountain copper signal harbour window "
    "teacher violin morning paper bridge island silver thunder kitchen forest captain story"
).split()
_UNICODE = ("größer", "naïve", "日本語", "한국어", "👩‍👩‍👧", "é", "Ωμέγα", "नमस्ते")


@dataclass
class Answer:
    """What a client holds of one choice: text, and each token with its logprob."""

    text: str = ""
    tokens: list[tuple[str, float]] = field(default_factory=list)
    finish_reason: str | None = None
    stop_reason: Any = None

    def add(self, choice: dict[str, Any]) -> None:
        delta = choice.get("delta") or choice.get("message") or choice
        self.text += delta.get("text") or delta.get("content") or ""
        self.tokens += _tokens(choice.get("logprobs") or {})
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        self.stop_reason = choice.get("stop_reason") or self.stop_reason

    def is_part_of(self, whole: Answer) -> bool:
        """Whether this is what a client of `whole` had at some moment."""
        return whole.text.startswith(self.text) and (
            whole.tokens[: len(self.tokens)] == self.tokens
        )


def _tokens(logprobs: dict[str, Any]) -> list[tuple[str, float]]:
    if "content" in logprobs:
        return [(entry["token"], entry["logprob"]) for entry in logprobs["content"]]
    return list(zip(logprobs.get("tokens", ()), logprobs.get("token_logprobs", ()), strict=True))


@dataclass
class Item:
    """A request of the pool; `solo` is its answer when nobody else was there."""

    path: str
    body: dict[str, Any]
    solo: Answer = field(default_factory=Answer)


def draw_pool(size: int, seed: int) -> list[Item]:
    """Both endpoints, greedy and sampled, with and without stop strings, 3 to 200 words."""
    rng = random.Random(seed)
    return [_draw(rng, index) for index in range(size)]


def _draw(rng: random.Random, index: int) -> Item:
    words = rng.choices(_WORDS, k=rng.choice((3, 8, 20, 60, 200))) + rng.sample(_UNICODE, 2)
    text = f"Story {index}: " + " ".join(words)
    body: dict[str, Any] = {"max_tokens": rng.choice((4, 12, 24, 32)), "seed": rng.randrange(1000)}
    body |= rng.choice(
        (
            {"temperature": 0},
            {"temperature": 1.0},
            {"temperature": 0.7, "top_k": 20},
            {"temperature": 1.2, "top_p": 0.9, "min_p": 0.02},
            {"temperature": 0.8, "repetition_penalty": 1.2, "presence_penalty": 0.4},
            {"temperature": 1.0, "stop": [" the", ".\n", "and"]},
        )
    )
    if index % 2:
        messages = [{"role": "user", "content": text}]
        return Item("/v1/chat/completions", {**body, "messages": messages, "logprobs": True})
    return Item("/v1/completions", {**body, "prompt": text, "logprobs": 0})


async def answer_alone(server: Server, items: list[Item]) -> None:
    """Fill in `solo`, one request after the other."""
    for item in items:
        async with Exchange(server.port) as exchange:
            await exchange.send(item.path, {**item.body, "stream": True})
            if await exchange.read_head() != 200:
                raise BadAnswerError((await exchange.body()).decode(errors="replace"))
            async for _ in growing(exchange, item.solo):
                pass


async def growing(exchange: Exchange, answer: Answer) -> AsyncIterator[None]:
    """Add each event of a stream to `answer`, and yield after each.

    Raises BadAnswerError for an error event and for a stream that stops without [DONE].
    """
    async for event in exchange.events():
        if event == b"[DONE]":
            return
        body = json.loads(event)
        if "error" in body:
            raise BadAnswerError(body["error"]["message"])
        for choice in body["choices"]:
            answer.add(choice)
        yield
