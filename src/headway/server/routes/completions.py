"""POST /v1/completions."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response

from headway.core.request import FinishReason, Request
from headway.server.errors import ApiError, Problem
from headway.server.frontend import Frontend, frontend_of, ignored_header, new_id
from headway.server.generation import ChoiceDelta, Generation
from headway.server.logprobs import CompletionLogprobs, prompt_logprobs
from headway.server.schema import CompletionBody
from headway.server.sse import EventStream, frame, until_disconnect

router = APIRouter()


@router.post("/v1/completions")
async def create_completion(http: HttpRequest) -> Response:
    """Complete one or several prompts, n choices each; see the OpenAI API."""
    frontend = frontend_of(http)
    parsed = await frontend.read(http, CompletionBody)
    body, headers = parsed.body, ignored_header(parsed.ignored)
    model = frontend.door.check_model(body.model)
    frontend.door.check_fields(body)
    answer_id = new_id("cmpl")
    requests = await _requests(frontend, answer_id, body)
    generation = frontend.generate(requests)
    answer = _Answer(frontend, answer_id, model, body, requests, generation)
    try:
        if not body.stream:
            return JSONResponse(await until_disconnect(http, answer.collect()), headers=headers)
        await until_disconnect(http, generation.accepted())
        return EventStream(answer.frames(), generation.close, headers)
    except BaseException:
        generation.close()
        raise


async def _requests(frontend: Frontend, answer_id: str, body: CompletionBody) -> list[Request]:
    add_special = True if body.add_special_tokens is None else body.add_special_tokens
    prompts = _prompts(body.prompt)
    frontend.door.check_num_choices(len(prompts), body)
    requests = []
    for index, prompt in enumerate(prompts):
        if isinstance(prompt, str):
            prompt = await frontend.encode(prompt, add_special_tokens=add_special)
        request_id = f"{answer_id}-{index}"
        requests.append(frontend.door.completion_request(request_id, prompt, body))
    return requests


def _prompts(prompt: str | Sequence[str | int | list[int]]) -> list[str | list[int]]:
    """One prompt (a string or token ids) or several of one kind."""
    if isinstance(prompt, str):
        return [prompt]
    kinds = {type(item) for item in prompt}
    if len(kinds) != 1:
        raise ApiError(
            Problem.INVALID_TYPE,
            "prompt must be a string, token ids, or a list of at least one prompt, all of one kind",
            "prompt",
        )
    if kinds == {int}:
        return [list(prompt)]  # type: ignore[arg-type]
    return list(prompt)  # type: ignore[arg-type]


class _Answer:
    """Writes one generation in the completion shapes."""

    def __init__(
        self,
        frontend: Frontend,
        answer_id: str,
        model: str,
        body: CompletionBody,
        requests: Sequence[Request],
        generation: Generation,
    ) -> None:
        self._tokenizer = frontend.tokenizer
        self._body = body
        self._requests = requests
        self._generation = generation
        self._head: dict[str, Any] = {
            "id": answer_id,
            "object": "text_completion",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": frontend.system_fingerprint,
        }
        self._logprobs = [
            CompletionLogprobs(frontend.tokenizer, body.logprobs or 0)
            for _ in range(generation.num_choices)
        ]
        self._is_begun = [False] * generation.num_choices

    async def collect(self) -> dict[str, Any]:
        choices: list[dict[str, Any]] = [{} for _ in range(self._generation.num_choices)]
        try:
            async for delta in self._deltas():
                _add(choices[delta.index], self._choice(delta))
        finally:
            self._generation.close()
        for choice in choices:
            self._add_prompt_logprobs(choice)
        return {**self._head, "choices": choices, "usage": self._usage()}

    async def frames(self) -> AsyncIterator[bytes]:
        options = self._body.stream_options
        with_usage = options is not None and options.include_usage
        running = with_usage and options is not None and options.continuous_usage_stats
        async for delta in self._deltas():
            chunk = {**self._head, "choices": [self._choice(delta)]}
            if with_usage:
                chunk["usage"] = self._usage() if running else None
            yield frame(chunk)
        if with_usage:
            yield frame({**self._head, "choices": [], "usage": self._usage()})

    async def _deltas(self) -> AsyncIterator[ChoiceDelta]:
        async for delta in self._generation.deltas():
            if self._is_score_only:
                yield ChoiceDelta(delta.index, "", (), FinishReason.LENGTH)
            else:
                yield delta

    @property
    def _is_score_only(self) -> bool:
        """max_tokens=0: one token is computed, because the prompt needs a pass, and not shown."""
        return self._body.max_tokens == 0

    def _usage(self) -> dict[str, object]:
        usage = self._generation.usage
        if self._is_score_only:
            usage.num_completion_tokens = 0
        return usage.body()

    def _choice(self, delta: ChoiceDelta) -> dict[str, Any]:
        text, logprobs = delta.text, None
        if self._body.logprobs is not None:
            logprobs = self._logprobs[delta.index].render(())
        if self._body.echo and not self._is_begun[delta.index]:
            text = self._echo(delta.index, logprobs) + text
        self._is_begun[delta.index] = True
        if logprobs is not None:
            _extend(logprobs, self._logprobs[delta.index].render(delta.logprobs))
        reason = delta.finish_reason
        return {
            "index": delta.index,
            "text": text,
            "logprobs": logprobs,
            "finish_reason": None if reason is None else reason.value,
            "stop_reason": delta.stop_reason,
        }

    def _request_of(self, choice_index: int) -> Request:
        return self._requests[choice_index // self._requests[0].sampling.n]

    def _echo(self, index: int, logprobs: dict[str, Any] | None) -> str:
        request = self._request_of(index)
        if logprobs is not None:
            positions = self._generation.prompt_logprobs.get(request.request_id, [None])
            echoed = self._logprobs[index].render_prompt(request.prompt_token_ids, positions)
            _extend(logprobs, echoed)
        return self._tokenizer.decode(
            request.prompt_token_ids, skip_special_tokens=request.sampling.skip_special_tokens
        )

    def _add_prompt_logprobs(self, choice: dict[str, Any]) -> None:
        if self._body.prompt_logprobs is not None:
            request = self._request_of(choice["index"])
            positions = self._generation.prompt_logprobs.get(request.request_id, [None])
            choice["prompt_logprobs"] = prompt_logprobs(self._tokenizer, positions)


def _add(choice: dict[str, Any], piece: dict[str, Any]) -> None:
    """Join a choice with its next piece; what comes later decides how it ended."""
    text = choice.get("text", "") + piece["text"]
    logprobs = piece["logprobs"]
    if choice.get("logprobs") is not None:
        logprobs = _extend(choice["logprobs"], logprobs)
    choice.update(piece, text=text, logprobs=logprobs)


def _extend(lists: dict[str, Any], more: dict[str, Any]) -> dict[str, Any]:
    for name, values in more.items():
        lists[name] += values
    return lists
