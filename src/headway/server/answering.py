"""The way that every generating endpoint answers, streamed or not; only the shapes differ."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import msgspec
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from headway.core.request import Request
from headway.server.arrival import Arrival
from headway.server.errors import ApiError
from headway.server.explaining import Asker, asker_of
from headway.server.frontend import Call, Frontend, frontend_of
from headway.server.generation import ChoiceDelta, Delivery
from headway.server.logprobs import TokenNames
from headway.server.schema.answers import ChatChunk, ChatCompletion, Completion, Finish
from headway.server.schema.bodies import GenerationBody
from headway.server.sse import DONE, EventStream, JsonAnswer, frame, until_disconnect
from headway.server.taking import num_untaken_of


@dataclass(frozen=True, slots=True)
class Envelope:
    """What stands in every chunk of an answer."""

    id: str
    created: int
    model: str
    fingerprint: str | None
    arrival: Arrival
    asker: Asker


class Writer(Protocol):
    """Writes one generation in the shapes of one endpoint."""

    def whole(self, deltas: Sequence[ChoiceDelta]) -> msgspec.Struct:
        """The answer that is not streamed; one delta for each choice, in order."""

    def opening(self) -> bytes:
        """What goes before the first delta, together with it."""

    def chunk(self, delta: ChoiceDelta) -> bytes: ...
    def closing(self) -> bytes: ...
    def failure(self, error: ApiError) -> bytes:
        """What a client reads in place of the rest: the status is long sent."""


def envelope(
    http: HttpRequest, prefix: str, model: str | None, arrival: Arrival, *, explain: bool = False
) -> Envelope:
    """Raises ApiError where there is no such model, or no explanation."""
    frontend = frontend_of(http)
    name = frontend.door.check_model(model)
    answer_id = f"{prefix}-{arrival.name}"
    http.state.request_id, http.state.request_name = answer_id, arrival.name
    asker = asker_of(http, explain, frontend.explanations)
    fingerprint = frontend.system_fingerprint
    return Envelope(answer_id, int(time.time()), name, fingerprint, arrival, asker)


def delivery_of(
    frontend: Frontend, body: GenerationBody, *, follows_text: bool, shows_output: bool = True
) -> Delivery:
    """A client may ask for longer intervals than the server's own, not for shorter ones."""
    interval = max(frontend.settings.stream_interval, body.stream_interval or 1)
    return Delivery(
        interval=interval if body.stream else None,
        shows_output=shows_output,
        follows_text=follows_text,
    )


async def answer(
    http: HttpRequest,
    frontend: Frontend,
    requests: Sequence[Request],
    delivery: Delivery,
    make_writer: Callable[[Call], Writer],
    headers: Mapping[str, str],
) -> Response:
    """Hand the requests to the engine and send what comes. Raises ApiError."""
    http.state.request_id = requests[0].request_id  # for the access log
    call = frontend.open_call(requests, delivery, num_untaken_of(http))
    try:
        writer = make_writer(call)
        if delivery.interval is None:
            deltas = await until_disconnect(http, call.generation.collect())
            return JsonAnswer(writer.whole(deltas), headers, call.close)
        await until_disconnect(http, call.generation.begun())
        return EventStream(_frames(call, writer), call.close, headers)
    except BaseException:
        call.close()
        raise


async def _frames(call: Call, writer: Writer) -> AsyncIterator[bytes]:
    """What came in one turn goes out in one piece."""
    opening = writer.opening()
    try:
        async for deltas in call.generation.batches():
            chunks = b"".join([writer.chunk(delta) for delta in deltas])
            if chunks:
                yield opening + chunks
                opening = b""
        yield opening + writer.closing()
    except ApiError as error:
        yield opening + writer.failure(error)


class Extras:
    """What an answer carries beside its choices: usage, and the timings of the request."""

    def __init__(self, frontend: Frontend, body: GenerationBody, call: Call, asker: Asker) -> None:
        options = body.stream_options
        settings = frontend.settings
        self._call = call
        self._has_usage = settings.enable_force_include_usage or (
            options is not None and options.include_usage
        )
        self._is_running = options is not None and options.continuous_usage_stats
        self._has_metrics = body.include_metrics or settings.enable_per_request_metrics
        self._asker = asker
        # A client that asked for none of it may not expect a chunk without choices.
        self._has_last_chunk = self._has_usage or body.include_metrics or asker.is_explained

    def complete(self, whole: Completion | ChatCompletion) -> None:
        """Into an answer that is not streamed."""
        whole.usage = self._call.generation.usage()
        if self._has_metrics:
            whole.metrics = self._call.metrics()
        whole.explain = self._call.explanation(self._asker)

    def mark(self, chunk: Completion | ChatChunk) -> None:
        """Into a chunk with choices."""
        if self._has_usage:
            chunk.usage = self._call.generation.usage() if self._is_running else None

    def end(self, chunk: Completion | ChatChunk) -> bytes:
        """The end of a stream; `chunk` has no choices and goes first where it has something."""
        if not self._has_last_chunk:
            return DONE
        if self._has_usage:
            chunk.usage = self._call.generation.usage()
        if self._has_metrics:
            chunk.metrics = self._call.metrics()
        chunk.explain = self._call.explanation(self._asker)
        return frame(chunk) + DONE


def finish_of(delta: ChoiceDelta) -> Finish | None:
    reason = delta.finish_reason
    return None if reason is None else cast(Finish, reason.value)


def token_names(frontend: Frontend, body: GenerationBody) -> TokenNames:
    as_ids = body.return_tokens_as_token_ids
    if as_ids is None:
        as_ids = frontend.settings.return_tokens_as_token_ids
    return TokenNames(frontend.tokenizer, as_ids=as_ids)


def error_frames(error: ApiError) -> bytes:
    return frame(error.answer()) + DONE
