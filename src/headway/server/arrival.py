"""When a request came, until when it is worth answering, and what it is called."""

from __future__ import annotations

import math
import re
import time
import uuid
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.requests import HTTPConnection

from headway.core.request import TimeLimits
from headway.server.config import AppSettings
from headway.server.errors import invalid_value

DEADLINE_HEADER = "x-request-deadline"
ID_HEADER = "x-request-id"
_MAX_DEADLINE_S = 10 * 365 * 24 * 3600
_ID = re.compile(r"[\x21-\x7e]{1,256}")
_TENANT = re.compile(r"[\x21-\x7e]{1,128}")


@dataclass(frozen=True, slots=True)
class Arrival:
    """`name` is the client's own request id, or one made up here; `tenant` is "" for nobody's."""

    ns: int
    limits: TimeLimits
    name: str
    tenant: str


def is_request_id(text: str) -> bool:
    return _ID.fullmatch(text) is not None


def arrive(http: HTTPConnection, settings: AppSettings, request_id: str | None) -> Arrival:
    """`request_id` is the body's; the header x-request-id wins. Raises ApiError."""
    now_ns = time.monotonic_ns()
    limits = _limits(http.headers, settings, now_ns)
    return Arrival(now_ns, limits, _name(http.headers, request_id), _tenant(http, settings))


def _tenant(http: HTTPConnection, settings: AppSettings) -> str:
    """The header's, else the key's (KeyCheck names it, with a space, which no header's has)."""
    header = settings.tenant_header
    named = None if header is None else http.headers.get(header)
    if named is None:
        return str(http.scope["state"].get("key_tenant", ""))
    if _TENANT.fullmatch(named) is None:
        raise invalid_value(
            f"{header} must have 1 to 128 characters of plain ASCII without spaces", header or ""
        )
    return named


def _name(headers: Headers, request_id: str | None) -> str:
    for param, name in ((ID_HEADER, headers.get(ID_HEADER)), ("request_id", request_id)):
        if name is None:
            continue
        if not is_request_id(name):
            raise invalid_value(
                f"{param} must have 1 to 256 characters of plain ASCII without spaces", param
            )
        return name
    return uuid.uuid4().hex


def _limits(headers: Headers, settings: AppSettings, now_ns: int) -> TimeLimits:
    seconds = _deadline_s(headers.get(DEADLINE_HEADER))
    if seconds is None:
        seconds = settings.default_deadline_s
    return TimeLimits(
        max_queue_ns=_ns(settings.max_queue_time_s),
        max_run_ns=_ns(settings.max_request_seconds),
        deadline_ns=None if seconds is None else now_ns + round(seconds * 1e9),
    )


def _ns(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e9)


def _deadline_s(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= _MAX_DEADLINE_S:
        raise invalid_value(
            f"{DEADLINE_HEADER} must be seconds from now, a decimal number above 0, got {text!r}",
            DEADLINE_HEADER,
        )
    return seconds
