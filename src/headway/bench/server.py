"""What a server says of itself beside its answers: which models it has."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from headway.bench.get import NoAnswerError, no_answer
from headway.bench.get import get as get_bounded
from headway.bench.http1 import shown
from headway.bench.target import Target

_PATIENCE_S = 10.0
_MOST_BYTES = 1 << 24
_MOST_NAME = 1000  # characters


class _Model(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    data: list[_Model]


def get(target: Target, path: str, headers: Mapping[str, str]) -> tuple[int, bytes]:
    """Status and body. Raises ValueError, with a sentence, where nobody answers in HTTP."""
    try:
        return get_bounded(target, path, headers, most_bytes=_MOST_BYTES, patience_s=_PATIENCE_S)
    except NoAnswerError as error:
        raise ValueError(no_answer(target.url, error)) from None


def served_model(target: Target, headers: Mapping[str, str]) -> str:
    """The first model of /v1/models. Raises ValueError with a sentence."""
    status, body = get(target, "/v1/models", headers)
    if status != 200:
        raise ValueError(
            f"{target.url}/v1/models answers with {status}: {shown(body)}; give --model, or the "
            f"key that it asks for as --api-key"
        )
    try:
        name = msgspec.json.decode(body, type=_Models).data[0].id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, IndexError):
        raise ValueError(f"{target.url}/v1/models names no model: give --model") from None
    if not name.isprintable() or len(name) > _MOST_NAME:
        raise ValueError(f"{target.url}/v1/models names {name[:80]!r}, no model: give --model")
    return name
