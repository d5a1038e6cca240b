"""Explanations from a running server."""

from __future__ import annotations

from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from headway.bench.get import NoAnswerError, get, no_answer
from headway.bench.http1 import printable
from headway.bench.target import Target, target_of
from headway.insight.explain.report import Explanation, Glance

_PATIENCE_S = 30.0
_MOST_SAID = 300  # characters of a refusal
_MOST_BYTES = 64 << 20
Answer = TypeVar("Answer")


class _Listed(msgspec.Struct):
    data: list[Glance]


def ask_server(
    url: str, key: str | None, name: str | None, num_slowest: int
) -> Explanation | list[Glance]:
    """Raises ValueError with a sentence."""
    target = target_of(url)
    if name is None:
        return _get(target, f"/v1/requests?slowest={num_slowest}", key, _Listed).data
    return _get(target, f"/v1/requests/{quote(name, safe='')}/explain", key, Explanation)


def _get(target: Target, path: str, key: str | None, kind: type[Answer]) -> Answer:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    base = target.url
    try:
        status, content = get(target, path, headers, most_bytes=_MOST_BYTES, patience_s=_PATIENCE_S)
    except NoAnswerError as why:
        raise ValueError(f"{no_answer(base, why)} --url names another") from None
    if status != 200:
        raise ValueError(_refusal(base, status, content))
    try:
        return msgspec.json.decode(content, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(
            f"{base} answers, but not as a Headway server of this version does: {error}"
        ) from None


def _refusal(base: str, status: int, content: bytes) -> str:
    if status == 401:
        return f"{base} asks for a key: give --api-key"
    try:
        said: Any = msgspec.json.decode(content)
        return printable(str(said["error"]["message"])[:_MOST_SAID])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError, TypeError):
        return f"{base} answers with status {status}: is it a Headway server of this version?"
