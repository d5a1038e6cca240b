"""POST /v1/completions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import APIRouter
from msgspec import UNSET
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from headway.core.request import Request
from headway.server.answering import (
    Envelope,
    Extras,
    answer,
    delivery_of,
    envelope,
    error_frames,
    finish_of,
    token_names,
)
from headway.server.arrival import Arrival, arrive
from headway.server.errors import ApiError, Problem
from headway.server.frontend import Call, Frontend, frontend_of, ignored_header
from headway.server.generation import ChoiceDelta
from headway.server.logprobs import CompletionWriter as LogprobsWriter
from headway.server.logprobs import prompt_logprobs
from headway.server.openapi import GENERATION_PROBLEMS, documented
from headway.server.params import clamped_header
from headway.server.schema.answers import Completion, CompletionChoice, CompletionLogprobs
from headway.server.schema.bodies import CompletionBody
from headway.server.sse import frame
from headway.wire import TokenLogprobs

router = APIRouter()


@router.post(
    "/v1/completions",
    **documented(Completion, CompletionBody, stream=[Completion], problems=GENERATION_PROBLEMS),
)
async def create_completion(http: HttpRequest) -> Response:
    """Complete one or several prompts, n choices each; see the OpenAI API."""
    frontend = frontend_of(http)
    parsed = await frontend.read(http, CompletionBody)
    body = parsed.body
    frontend.door.check_fields(body)
    arrival = arrive(http, frontend.settings, body.request_id)
    head = envelope(http, "cmpl", body.model, arrival, explain=body.explain)
    requests = await _requests(frontend, head.id, body, arrival)
    headers = ignored_header(parsed.ignored)
    headers |= clamped_header(body.max_tokens, requests)
    # max_tokens=0 with echo only scores the prompt.
    delivery = delivery_of(frontend, body, follows_text=True, shows_output=body.max_tokens != 0)
    return await answer(
        http,
        frontend,
        requests,
        delivery,
        lambda call: CompletionWriter(frontend, head, body, call),
        headers,
    )


async def _requests(
    frontend: Frontend, answer_id: str, body: CompletionBody, arrival: Arrival
) -> list[Request]:
    add_special = True if body.add_special_tokens is None else body.add_special_tokens
    prompts = _prompts(body.prompt)
    num_choices = frontend.door.check_num_choices(len(prompts), body)
    frontend.check_room(num_choices, arrival.tenant)
    requests = []
    for index, prompt in enumerate(await _token_ids(frontend, prompts, add_special)):
        request_id = f"{answer_id}-{index}"
        requests.append(frontend.door.completion_request(request_id, prompt, body, arrival))
    return requests


async def _token_ids(
    frontend: Frontend, prompts: Sequence[str | list[int]], add_special_tokens: bool
) -> list[list[int]]:
    """The prompts are all texts or all ids."""
    texts = [prompt for prompt in prompts if isinstance(prompt, str)]
    if not texts:
        return [prompt for prompt in prompts if not isinstance(prompt, str)]
    return await frontend.encode_all(texts, add_special_tokens=add_special_tokens)


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
    items: list[Any] = list(prompt)
    return [items] if kinds == {int} else items


class CompletionWriter:
    """A `Writer` of completions."""

    def __init__(
        self, frontend: Frontend, head: Envelope, body: CompletionBody, call: Call
    ) -> None:
        self._head = head
        self._body = body
        self._generation = call.generation
        self._tokenizer = frontend.tokenizer
        self._extras = Extras(frontend, body, call, head.asker)
        names = token_names(frontend, body)
        self._logprobs = [
            LogprobsWriter(names, body.logprobs or 0) for _ in range(self._generation.num_choices)
        ]

    def whole(self, deltas: Sequence[ChoiceDelta]) -> Completion:
        choices = [self._choice(delta) for delta in deltas]
        for choice in choices:
            if self._body.prompt_logprobs is not None:
                choice.prompt_logprobs = prompt_logprobs(
                    self._tokenizer, self._prompt_positions(choice.index)
                )
        whole = self._chunk(choices)
        self._extras.complete(whole)
        return whole

    def opening(self) -> bytes:
        return b""

    def chunk(self, delta: ChoiceDelta) -> bytes:
        chunk = self._chunk([self._choice(delta)])
        self._extras.mark(chunk)
        return frame(chunk)

    def closing(self) -> bytes:
        return self._extras.end(self._chunk([]))

    def failure(self, error: ApiError) -> bytes:
        return error_frames(error)

    def _chunk(self, choices: list[CompletionChoice]) -> Completion:
        head = self._head
        return Completion(
            id=head.id,
            created=head.created,
            model=head.model,
            system_fingerprint=head.fingerprint,
            choices=choices,
        )

    def _choice(self, delta: ChoiceDelta) -> CompletionChoice:
        choice = CompletionChoice(
            delta.index,
            delta.text,
            self._logprobs_of(delta),
            finish_of(delta),
            delta.stop_reason,
        )
        request = self._generation.request_of(delta.index)
        if delta.is_first and self._body.echo:
            choice.text = self._echo(request) + choice.text
        if self._body.return_token_ids:
            choice.token_ids = list(delta.token_ids)
            choice.prompt_token_ids = list(request.prompt_token_ids) if delta.is_first else UNSET
        return choice

    def _logprobs_of(self, delta: ChoiceDelta) -> CompletionLogprobs | None:
        if self._body.logprobs is None:
            return None
        writer = self._logprobs[delta.index]
        lists = CompletionLogprobs.empty()
        if delta.is_first and self._body.echo:
            request = self._generation.request_of(delta.index)
            positions = self._prompt_positions(delta.index)
            lists = writer.write_prompt(request.prompt_token_ids, positions)
        lists.extend(writer.write(delta.logprobs))
        return lists

    def _prompt_positions(self, choice_index: int) -> Sequence[TokenLogprobs | None]:
        request_id = self._generation.request_of(choice_index).request_id
        return self._generation.prompt_logprobs.get(request_id, [None])

    def _echo(self, request: Request) -> str:
        return self._tokenizer.decode(
            request.prompt_token_ids, skip_special_tokens=request.sampling.skip_special_tokens
        )
