"""Days of answers for tests, drawn from seeds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from headway.insight.usage.answer import Answer, Ending
from headway.insight.usage.columns import Columns, LeftOut, Usage


def usage_of(answers: list[Answer], left_out: dict[str, LeftOut] | None = None) -> Usage:
    columns = Columns()
    for answer in answers:
        columns.add(answer)
    return columns.usage(left_out or {})


def chat(
    count: int = 400,
    *,
    seed: int = 0,
    cap: int | None = None,
    cut: float = 0.0,
    limit: int = 2048,
    **fields: object,
) -> list[Answer]:
    """Lognormal lengths; all are cut at `cap`, and a share `cut` of them at `limit`."""
    draws = np.random.default_rng(seed)
    answers = []
    for length in draws.lognormal(4.8, 0.7, count).astype(int) + 1:
        ending = Ending.STOP
        if draws.random() < cut:
            length, ending = limit, Ending.LENGTH
        if cap is not None and length >= cap:
            length, ending = cap, Ending.LENGTH
        answers.append(
            Answer(int(length), int(draws.integers(20, 900)), ending=ending)._replace(**fields)
        )
    return answers


def written(path: Path, answers: list[Answer]) -> Path:
    """As bodies of /v1/chat/completions."""
    words = {Ending.STOP: "stop", Ending.LENGTH: "length", Ending.ABORT: "abort"}
    with path.open("w") as file:
        for one in answers:
            body = {
                "object": "chat.completion",
                "model": one.model,
                "choices": [{"finish_reason": words.get(one.ending)}],
                "usage": {
                    "prompt_tokens": one.prompt_tokens,
                    "completion_tokens": one.completion_tokens,
                },
                "max_tokens": one.max_tokens,
            }
            file.write(json.dumps(body) + "\n")
    return path
