"""What every route needs, and the steps that the two generating endpoints share."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar, cast

from starlette.requests import Request as HttpRequest

from headway.core.request import Request
from headway.insight.metrics import Metrics
from headway.server.config import AppSettings
from headway.server.engine_client import EngineClient
from headway.server.errors import ApiError, Problem
from headway.server.generation import Generation
from headway.server.params import Door
from headway.server.schema import CommonBody, Parsed, parse
from headway.server.subscription import EngineDeadError
from headway.text.chat_template import ChatTemplate
from headway.text.tokenizer import Tokenizer

MAX_BODY_BYTES = 32 << 20
# Encoding this much takes milliseconds: it must not hold up everybody's streams.
_LONG_TEXT = 20_000
Body = TypeVar("Body", bound=CommonBody)


@dataclass(frozen=True)
class Frontend:
    """Lives at `app.state.frontend`. `template` is None where the model has no chat template."""

    client: EngineClient
    tokenizer: Tokenizer
    template: ChatTemplate | None
    settings: AppSettings
    metrics: Metrics

    @cached_property
    def door(self) -> Door:
        return Door(self.client.facts, self.settings)

    @cached_property
    def system_fingerprint(self) -> str:
        facts = self.client.facts
        return f"headway-{facts.backend}-{facts.dtype}".replace("/", "-")

    async def read(self, http: HttpRequest, body_type: type[Body]) -> Parsed[Body]:
        """Raises ApiError; a body that is too long is refused before it is held."""
        pieces: list[bytes] = []
        num_bytes = 0
        async for piece in http.stream():
            num_bytes += len(piece)
            if num_bytes > MAX_BODY_BYTES:
                limit = MAX_BODY_BYTES >> 20
                raise ApiError(Problem.TOO_LARGE, f"the body is longer than {limit} MiB")
            pieces.append(piece)
        return parse(b"".join(pieces), body_type)

    async def encode(self, text: str, *, add_special_tokens: bool) -> list[int]:
        try:
            if len(text) < _LONG_TEXT:
                return self.tokenizer.encode(text, add_special_tokens)
            return await asyncio.to_thread(self.tokenizer.encode, text, add_special_tokens)
        except ValueError as error:
            raise ApiError(Problem.INVALID_VALUE, str(error), "prompt") from None

    def generate(self, requests: Sequence[Request]) -> Generation:
        try:
            subscription = self.client.submit(requests)
        except EngineDeadError as error:
            raise ApiError(Problem.ENGINE_DEAD, f"no answer: {error}") from None
        return Generation(subscription, requests, self.tokenizer)


def frontend_of(http: HttpRequest) -> Frontend:
    return cast(Frontend, http.app.state.frontend)


def ignored_header(ignored: Sequence[str]) -> dict[str, str]:
    """Names of fields that were accepted and had no effect; nothing but plain ASCII gets out."""
    if not ignored:
        return {}
    shown = [name.encode("ascii", "backslashreplace").decode() for name in ignored[:50]]
    names = ", ".join("".join(c for c in name[:80] if c.isprintable()) for name in shown)
    return {"x-headway-ignored-fields": names}


def new_id(prefix: str) -> str:
    return f"{prefix}-{uuid.uuid4().hex}"
