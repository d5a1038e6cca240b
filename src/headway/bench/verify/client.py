"""One server, asked for whole answers in whatever way it takes the question."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx

from headway.bench.get import no_answer
from headway.bench.http1 import printable
from headway.bench.target import CHAT, COMPLETIONS, Target
from headway.bench.verify.answers import (
    AnswerError,
    Endpoint,
    read_output,
    refusal_text,
)
from headway.bench.verify.prompts import Prompt
from headway.insight.verify.difference import Output
from headway.insight.verify.report import Failure, Outcome

_PATHS: Mapping[Endpoint, str] = {"chat": CHAT, "completions": COMPLETIONS}
_CONNECT_TIMEOUT_S = 10.0
_MAX_ANSWER_BYTES = 64 << 20
_TRY_ANOTHER_WAY = frozenset({400, 404, 405, 422, 501})


class ServerError(Exception):
    """The server cannot be verified; the message is one sentence that says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How long an answer may get and how it is drawn; a seed is sent above temperature 0 only."""

    max_tokens: int
    temperature: float = 0.0
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class Form:
    """A way to ask. `num_likeliest`: tokens told for each position; 0 asks for no logprobs."""

    endpoint: Endpoint
    num_likeliest: int
    wants_ids: bool

    def body(self, prompt: Prompt, sampling: Sampling) -> dict[str, Any]:
        if self.endpoint == "chat":
            body: dict[str, Any] = {"messages": prompt.as_messages()}
        else:
            body = {"prompt": prompt.as_text()}
        body |= {"max_tokens": sampling.max_tokens, "temperature": sampling.temperature}
        if sampling.temperature > 0 and sampling.seed is not None:
            body["seed"] = sampling.seed
        return body | self._logprobs()

    def _logprobs(self) -> dict[str, Any]:
        if not self.num_likeliest:
            return {}
        ids = {"return_tokens_as_token_ids": True} if self.wants_ids else {}
        if self.endpoint == "chat":
            return {"logprobs": True, "top_logprobs": self.num_likeliest, **ids}
        return {"logprobs": self.num_likeliest, **ids}


class Server:
    """Answers to single requests. Made by `connected`."""

    def __init__(self, client: httpx.AsyncClient, model: str, form: Form, timeout_s: float) -> None:
        self._client = client
        self._timeout_s = timeout_s
        self.model = model
        self.form = form

    async def ask(self, prompt: Prompt, sampling: Sampling) -> Outcome:
        """The answer, or why there is none."""
        body = {"model": self.model, **self.form.body(prompt, sampling)}
        try:
            async with asyncio.timeout(self._timeout_s):
                status, answer = await _sent(
                    self._client, "POST", _PATHS[self.form.endpoint], json=body
                )
            if status != 200:
                return Failure(refusal_text(status, answer), status)
            return read_output(self.form.endpoint, answer)
        except TimeoutError:
            return Failure(f"no whole answer within {self._timeout_s:g} s")
        except (httpx.HTTPError, AnswerError) as error:
            return Failure(_sentence(error))


@asynccontextmanager
async def connected(
    target: Target,
    *,
    model: str,
    endpoint: Endpoint | None,
    probe: tuple[Prompt, Sampling],
    num_likeliest: int,
    headers: Mapping[str, str],
    timeout_s: float,
    transport: httpx.AsyncBaseTransport | None = None,
) -> AsyncIterator[Server]:
    """A `Server` that has answered `probe` once. Raises ServerError.

    `endpoint`: None takes chat where the server does, completions elsewhere. As much is asked for
    as the server gives: token ids, else logprobs with the tokens' texts, else text alone.
    """
    async with httpx.AsyncClient(
        base_url=target.url,
        headers={**headers, "accept-encoding": "identity"},
        verify=target.tls or False,
        timeout=httpx.Timeout(timeout_s, connect=_CONNECT_TIMEOUT_S, pool=None),
        limits=httpx.Limits(max_connections=None),
        transport=transport,
        trust_env=False,
    ) as client:
        form = await _form_taken(client, model, _forms(endpoint, num_likeliest), probe, timeout_s)
        yield Server(client, model, form, timeout_s)


async def _form_taken(
    client: httpx.AsyncClient,
    model: str,
    forms: Iterator[Form],
    probe: tuple[Prompt, Sampling],
    timeout_s: float,
) -> Form:
    """The first that gets an answer. Raises ServerError with the reason that the last got none."""
    failure = Failure("nothing was asked")
    for form in forms:
        outcome = await Server(client, model, form, timeout_s).ask(*probe)
        if isinstance(outcome, Output):
            return form
        failure = outcome
        if failure.status is None:
            raise ServerError(no_answer(str(client.base_url), failure.reason))
        if failure.status not in _TRY_ANOTHER_WAY:
            break
    reason = f"{failure.reason}{_advice(failure)}"
    raise ServerError(f"{client.base_url} does not answer a question: {reason}")


def _forms(endpoint: Endpoint | None, num_likeliest: int) -> Iterator[Form]:
    endpoints: Sequence[Endpoint] = (endpoint,) if endpoint else ("chat", "completions")
    for each in endpoints:
        if num_likeliest:
            yield Form(each, num_likeliest, wants_ids=True)
            yield Form(each, num_likeliest, wants_ids=False)
        yield Form(each, 0, wants_ids=False)


async def _sent(
    client: httpx.AsyncClient, method: str, path: str, **fields: Any
) -> tuple[int, bytes]:
    """Status and body, which may be of any length but not endless."""
    async with client.stream(method, path, **fields) as reply:
        body = bytearray()
        async for piece in reply.aiter_bytes():
            body += piece
            if len(body) > _MAX_ANSWER_BYTES:
                raise AnswerError(f"the answer is longer than {_MAX_ANSWER_BYTES >> 20} MiB")
        return reply.status_code, bytes(body)


def _advice(failure: Failure) -> str:
    match failure.status:
        case 401 | 403:
            return "; it asks for a key: give --api-key"
        case 301 | 302 | 303 | 307 | 308:
            return "; it is elsewhere: give the URL that it sends to"
        case 404 | 405:
            return "; give its --model and --endpoint, or another URL"
        case _:
            return ""


def _sentence(error: Exception) -> str:
    return printable(str(error)) or type(error).__name__
