"""What every route needs of the server that it belongs to."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Any, TypeVar, cast
from urllib.parse import quote

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request as HttpRequest

from headway.core.request import Request
from headway.insight.explain.report import Explanation
from headway.insight.metrics import Metrics
from headway.insight.timeline import Timelines, metrics_body
from headway.server.brakes import NeverFitsError, QueueFullError
from headway.server.config import AppSettings
from headway.server.engine_client import EngineClient
from headway.server.errors import ApiError, Problem
from headway.server.explaining import Asker, Explanations
from headway.server.generation import Delivery, Generation
from headway.server.ledger import IdInUseError
from headway.server.params import Door, seed_source
from headway.server.rendering import ChatRenderer
from headway.server.schema.parsing import Parsed, parse
from headway.server.subscription import EngineDeadError
from headway.server.taking import NumUntaken, Takers
from headway.text.chat_template import ChatTemplate
from headway.text.tokenizer import Tokenizer

# So many characters or tokens take milliseconds: they must not hold up everybody's streams.
_LONG_TEXT = 20_000
_BATCH = 16  # texts
Body = TypeVar("Body", bound=msgspec.Struct)
Result = TypeVar("Result")


@dataclass(slots=True)
class OpenCalls:
    """How many requests of generating endpoints are under way."""

    count: int = 0


@dataclass(frozen=True)
class Frontend:
    """Lives at `app.state.frontend`. `template` is None where the model has no chat template."""

    client: EngineClient
    tokenizer: Tokenizer
    template: ChatTemplate | None
    settings: AppSettings
    metrics: Metrics
    timelines: Timelines
    explanations: Explanations | None = None
    open_calls: OpenCalls = field(default_factory=OpenCalls)
    takers: Takers = field(default_factory=Takers)

    @property
    def door(self) -> Door:
        """Made anew for each request: a restarted engine may have other facts."""
        return Door(self.client.facts, self.settings, self.tokenizer, self._draw_seed)

    @cached_property
    def _draw_seed(self) -> Callable[[], int]:
        return seed_source(self.settings.seed)

    @cached_property
    def renderer(self) -> ChatRenderer:
        return ChatRenderer(self.template, self.tokenizer, self.settings)

    @property
    def system_fingerprint(self) -> str | None:
        mode = self.settings.fingerprint_mode
        if mode in ("none", "custom"):
            return self.settings.fingerprint_value
        facts = self.client.facts
        full = f"headway-{facts.backend}-{facts.precision}".replace("/", "-")
        if mode == "hash":
            return f"headway-{hashlib.sha256(full.encode()).hexdigest()[:8]}"
        return full

    async def read(self, http: HttpRequest, body_type: type[Body], **rules: Any) -> Parsed[Body]:
        """Raises ApiError; a body that is too long is refused before it is held."""
        return parse(await self._read_bytes(http), body_type, **rules)

    async def _read_bytes(self, http: HttpRequest) -> bytes:
        limit = self.settings.max_body_bytes
        pieces: list[bytes] = []
        num_bytes = 0
        async for piece in http.stream():
            num_bytes += len(piece)
            if num_bytes > limit:
                raise ApiError(Problem.TOO_LARGE, f"the body is longer than {limit} bytes")
            pieces.append(piece)
        return b"".join(pieces)

    async def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        """The ids of one text. Raises ApiError, as `encode_all`."""
        [token_ids] = await self.encode_all([text], add_special_tokens=add_special_tokens)
        return token_ids

    async def encode_all(
        self, texts: Sequence[str], *, add_special_tokens: bool
    ) -> list[list[int]]:
        """The ids of each text. Raises ApiError; what cannot fit is refused before it is read."""
        num_chars = sum(map(len, texts))
        try:
            if num_chars < _LONG_TEXT:
                return [self.tokenizer.encode(text, add_special_tokens) for text in texts]
            self._check_length(max(map(len, texts)))
            return await asyncio.to_thread(self._encode_long, texts, add_special_tokens)
        except ValueError as error:
            raise ApiError(Problem.INVALID_VALUE, str(error), "prompt") from None

    def _encode_long(self, texts: Sequence[str], add_special_tokens: bool) -> list[list[int]]:
        """As batches, even of one: they let others run meanwhile, which `encode` does not."""
        found: list[list[int]] = []
        for begin in range(0, len(texts), _BATCH):
            batch = texts[begin : begin + _BATCH]
            found += self.tokenizer.encode_batch(batch, add_special_tokens)
        return found

    def _check_length(self, num_chars: int) -> None:
        num_tokens, most = self.client.facts.max_model_len, self.tokenizer.longest_token
        if num_chars > num_tokens * most:
            raise ApiError(
                Problem.CONTEXT_LENGTH,
                f"a text of {num_chars} characters is more than the context of {num_tokens} tokens "
                f"can hold: a token has {most} characters at most",
                "prompt",
            )

    async def decode(self, token_ids: Sequence[int]) -> str:
        """The text of the ids, special tokens included. Raises ValueError."""
        decode = partial(self.tokenizer.decode, token_ids, skip_special_tokens=False)
        return await run_aside(decode, len(token_ids))

    def check_room(self, num_sequences: int, tenant: str) -> None:
        """Refuse before any work is done what `open_call` would refuse after it."""
        try:
            self.client.check_room(num_sequences, tenant)
        except NeverFitsError as error:
            raise ApiError(Problem.NEVER_FITS, str(error)) from None
        except QueueFullError as error:
            raise self._queue_full(error) from None

    def open_call(
        self, requests: Sequence[Request], delivery: Delivery, num_untaken: NumUntaken
    ) -> Call:
        """Hand the requests to the engine, all or none. Raises ApiError."""
        try:
            subscription = self.client.submit(requests)
        except EngineDeadError as error:
            message = f"no answer: {error}"
            raise ApiError(
                Problem.ENGINE_DEAD, message, retry_after_s=error.retry_after_s
            ) from None
        except IdInUseError as error:
            raise ApiError(Problem.ID_IN_USE, str(error), "request_id") from None
        except QueueFullError as error:
            raise self._queue_full(error) from None
        generation = Generation(
            subscription, requests, self.tokenizer, delivery, self.client.retry_after_s
        )
        return Call(self, generation, num_untaken)

    def _queue_full(self, error: QueueFullError) -> ApiError:
        is_429 = self.settings.queue_full_status == 429
        problem = Problem.QUEUE_FULL_429 if is_429 else Problem.QUEUE_FULL_503
        return ApiError(problem, str(error), retry_after_s=error.retry_after_s)


class Call:
    """One request of a generating endpoint, from the engine's door to the last byte taken."""

    def __init__(self, frontend: Frontend, generation: Generation, num_untaken: NumUntaken) -> None:
        self.generation = generation
        self._num_untaken = num_untaken
        self._frontend = frontend
        self._is_open = True
        frontend.open_calls.count += 1

    def metrics(self) -> dict[str, Any] | UnsetType:
        self._frontend.client.catch_up()
        timings = self._frontend.timelines.take(self.generation.requests)
        return UNSET if timings is None else metrics_body(timings)

    def explanation(self, asker: Asker) -> Explanation | UnsetType:
        """Up to now, if it was asked for."""
        explanations = self._frontend.explanations
        if explanations is None or not asker.is_explained:
            return UNSET
        return explanations.of_body(self.generation.requests, asker.tenant) or UNSET

    def close(self) -> None:
        """Withdraw what has not ended. May be called again."""
        if not self._is_open:
            return
        self._is_open = False
        self._frontend.open_calls.count -= 1
        self.generation.close()
        self._frontend.takers.once_taken(self._num_untaken, self._delivered)

    def _delivered(self) -> None:
        self._frontend.client.catch_up()
        requests, now_ns = self.generation.requests, time.monotonic_ns()
        self._frontend.timelines.delivered(requests, now_ns)
        if self._frontend.explanations is not None:
            self._frontend.explanations.fold.delivered(requests, now_ns)


async def run_aside(work: Callable[[], Result], length: int) -> Result:
    """Here and now, or in a thread where `length` characters or tokens make it long."""
    return work() if length < _LONG_TEXT else await asyncio.to_thread(work)


def frontend_of(http: HttpRequest) -> Frontend:
    return cast(Frontend, http.app.state.frontend)


def ignored_header(ignored: Sequence[str]) -> dict[str, str]:
    """Names of fields that were accepted and had no effect; what is no plain name is quoted."""
    if not ignored:
        return {}
    names = [quote(name[:80], safe="", errors="replace") or '""' for name in ignored[:50]]
    return {"x-headway-ignored-fields": ", ".join(names)}
