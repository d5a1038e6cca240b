"""The openai package, async, against the real server."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import openai
from benchmarks.load.server import Server

from tests.clients.waiting import is_soon_idle

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]


def with_client(base_url: str, work: Any) -> Any:
    async def run() -> Any:
        async with openai.AsyncOpenAI(base_url=base_url, api_key="none", max_retries=0) as client:
            return await work(client)

    return asyncio.run(run())


def test_many_at_once_are_answered_as_alone(base_url: str, model: str) -> None:
    async def complete(client: openai.AsyncOpenAI, number: int) -> str:
        answer = await client.completions.create(
            model=model, prompt=f"Number {number}:", seed=number, max_tokens=8
        )
        return answer.choices[0].text

    async def alone_and_together(client: openai.AsyncOpenAI) -> tuple[list[str], list[str]]:
        alone = [await complete(client, number) for number in range(8)]
        return alone, await asyncio.gather(*(complete(client, number) for number in range(8)))

    alone, together = with_client(base_url, alone_and_together)
    assert together == alone


def test_stream(base_url: str, model: str) -> None:
    async def said(client: openai.AsyncOpenAI) -> str:
        stream = await client.chat.completions.create(
            model=model, messages=QUESTION, temperature=0, stream=True
        )
        return "".join([c.choices[0].delta.content or "" async for c in stream])

    assert with_client(base_url, said) == "The capital of France is Paris."


def test_a_cancelled_task_frees_its_blocks(base_url: str, model: str, server: Server) -> None:
    async def endless(client: openai.AsyncOpenAI, *, is_streamed: bool) -> None:
        answer = await client.completions.create(
            model=model,
            prompt="Count:",
            max_tokens=4000,
            stream=is_streamed,
            extra_body={"ignore_eos": True},
        )
        async for _ in answer:
            pass

    async def cancel(client: openai.AsyncOpenAI) -> None:
        work: list[Coroutine[Any, Any, None]] = [
            endless(client, is_streamed=True),
            endless(client, is_streamed=False),
        ]
        tasks = [asyncio.create_task(item) for item in work]
        while await asyncio.to_thread(server.metric, "vllm:num_requests_running") < 2:
            await asyncio.sleep(0.02)
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)

    with_client(base_url, cancel)
    assert is_soon_idle(server)
