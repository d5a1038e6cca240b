"""Code as people have it for vLLM, unchanged but for the command that starts the server."""

from __future__ import annotations

from typing import Any

import httpx
from benchmarks.load.server import Server
from openai import OpenAI


def test_seven_lines(base_url: str, model: str) -> None:
    client = OpenAI(base_url=base_url, api_key="EMPTY")
    response = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": "What is the capital of France?"}],
        temperature=0.8,
        top_p=0.95,
        max_tokens=32,
        extra_body={"top_k": 1, "min_p": 0.05, "repetition_penalty": 1.05},
    )
    assert response.choices[0].message.content == "The capital of France is Paris."


def test_the_extras_of_completions(base_url: str, model: str) -> None:
    client = OpenAI(base_url=base_url, api_key="EMPTY")
    completion = client.completions.create(
        model=model,
        prompt="A robot may not injure a human being",
        n=2,
        max_tokens=8,
        seed=1,
        extra_body={
            "top_k": 20,
            "min_tokens": 8,
            "ignore_eos": True,
            "skip_special_tokens": False,
            "stop_token_ids": [0],
            "include_stop_str_in_output": True,
            "prompt_logprobs": 1,
        },
    )
    assert completion.usage is not None
    assert completion.usage.completion_tokens == 16
    prompt_logprobs = completion.choices[0].model_dump()["prompt_logprobs"]
    assert prompt_logprobs[0] is None
    assert len(prompt_logprobs) == completion.usage.prompt_tokens


def test_template_options(base_url: str, model: str) -> None:
    client = OpenAI(base_url=base_url, api_key="EMPTY")
    response = client.chat.completions.create(
        model=model,
        messages=[
            {"role": "user", "content": "What is the capital of France?"},
            {"role": "assistant", "content": "The capital of"},
        ],
        temperature=0,
        extra_body={"add_generation_prompt": False, "continue_final_message": True},
    )
    assert response.choices[0].message.content == " France is Paris."


def test_tokens_in_and_out(base_url: str, model: str) -> None:
    client = OpenAI(base_url=base_url, api_key="EMPTY")

    def complete(prompt: str, **extra: object) -> dict[str, Any]:
        answer = client.completions.create(
            model=model, prompt=prompt, temperature=0, max_tokens=4, extra_body=extra
        )
        return answer.choices[0].model_dump()

    free = complete("The capital of France is", return_token_ids=True)
    assert free["text"].startswith(" Paris")
    first = free["token_ids"][0]
    assert len(free["prompt_token_ids"]) == 5
    banned = complete("The capital of France is", bad_words=["Paris"])
    assert not banned["text"].startswith(" Paris")
    allowed = complete("The capital of France is", allowed_token_ids=[first], ignore_eos=True)
    assert allowed["text"] == " Paris" * 4
    cut = complete("x x x x x x x x", truncate_prompt_tokens=3, return_token_ids=True)
    assert len(cut["prompt_token_ids"]) == 3
    salted = complete("The capital of France is", cache_salt="mine", priority=0)
    assert salted["text"] == free["text"]


def test_the_endpoints_beside_the_api(server: Server, model: str) -> None:
    tokens = httpx.post(
        f"{server.url}/tokenize", json={"model": model, "prompt": "The capital of France"}
    ).json()
    assert tokens["count"] == len(tokens["tokens"]) == 4
    text = httpx.post(
        f"{server.url}/detokenize", json={"model": model, "tokens": tokens["tokens"]}
    ).json()
    assert text["prompt"] == "The capital of France"
    assert httpx.get(f"{server.url}/version").json()["version"]
    assert httpx.get(f"{server.url}/ping").status_code == 200
