"""Explanations from a running server."""

from __future__ import annotations

import time
from typing import Any, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from headway.insight.explain.report import Explanation, Glance

_TIMEOUT_S = 30.0
_MOST_BYTES = 64 << 20
Answer = TypeVar("Answer")


class _Listed(msgspec.Struct):
    data: list[Glance]


def ask_server(
    url: str, key: str | None, name: str | None, num_slowest: int
) -> Explanation | list[Glance]:
    """Raises ValueError with a sentence."""
    base = url.rstrip("/").removesuffix("/v1")
    if name is None:
        return _get(f"{base}/v1/requests?slowest={num_slowest}", key, base, _Listed).data
    return _get(f"{base}/v1/requests/{quote(name, safe='')}/explain", key, base, Explanation)


def _get(url: str, key: str | None, base: str, kind: type[Answer]) -> Answer:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    try:
        status, content = _read(url, headers)
    except (httpx.HTTPError, httpx.InvalidURL, UnicodeError) as error:
        why = str(error) or type(error).__name__
        raise ValueError(f"no answer from {base}: {why}; --url says where the server is") from None
    if status != 200:
        raise ValueError(_refusal(base, status, content))
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(
            f"{base} answers, but not as a Headway server of this version does: {error}"
        ) from None


def _read(url: str, headers: dict[str, str]) -> tuple[int, bytes]:
    """The status and the body, within limits of time and size."""
    until = time.monotonic() + _TIMEOUT_S
    content = b""
    with httpx.stream("GET", url, headers=headers, timeout=_TIMEOUT_S) as reply:
        for piece in reply.iter_bytes():
            content += piece
            if len(content) > _MOST_BYTES:
                raise httpx.HTTPError(f"it sent more than {_MOST_BYTES >> 20} MiB")
            if time.monotonic() > until:
                raise httpx.HTTPError(f"it had not answered in whole after {_TIMEOUT_S:g} s")
    return reply.status_code, content


def _refusal(base: str, status: int, content: bytes) -> str:
    if status == 401:
        return f"{base} needs a key: give --api-key, or set HEADWAY_API_KEY"
    try:
        said: Any = msgspec.json.decode(content)
        return str(said["error"]["message"])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, TypeError):
        return f"{base} answers with status {status}: is it a Headway server of this version?"
