"""What a server says of itself beside its answers: which models it has."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import httpx
import msgspec

from headway.bench.http1 import shown
from headway.bench.target import Target

_PATIENCE_S = 10.0
_MOST_BYTES = 1 << 24
_MOST_SHOWN = 200  # characters of what is wrong


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


def get(target: Target, path: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
    """Status and body. Raises ValueError, with a sentence, where nobody answers in HTTP."""
    verify: Any = target.tls or False
    try:
        with (
            httpx.Client(verify=verify, trust_env=False, timeout=_PATIENCE_S) as client,
            client.stream("GET", target.url + path, headers=dict(headers)) as reply,
        ):
            body, until_s = b"", time.monotonic() + _PATIENCE_S
            for piece in reply.iter_bytes():
                body += piece
                if len(body) > _MOST_BYTES or time.monotonic() > until_s:
                    raise ValueError(f"{target.url}{path} does not end")
            return reply.status_code, body
    except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
        why = " ".join(str(error).split())[:_MOST_SHOWN] or type(error).__name__
        raise ValueError(f"{target.url} does not answer: {why}; is a server there?") from None


def served_model(target: Target, headers: Mapping[str, str]) -> str:
    """The first model of /v1/models. Raises ValueError with a sentence."""
    status, body = get(target, "/v1/models", headers)
    if status != 200:
        raise ValueError(
            f"{target.url}/v1/models answers with {status}: {shown(body)}; give --model, or the "
            f"key that it asks for in OPENAI_API_KEY"
        )
    try:
        return msgspec.json.decode(body, type=_Models).data[0].id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, IndexError):
        raise ValueError(f"{target.url}/v1/models names no model: give --model") from None
