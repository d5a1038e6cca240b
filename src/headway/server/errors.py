"""One table: what went wrong → status, type and code; the body has OpenAI's shape."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, cast

import msgspec

from headway.server.schema.answers import ErrorAnswer, ErrorBody


@dataclass(frozen=True, slots=True)
class Kind:
    status: int
    type: str
    code: str


class Problem(Enum):
    """Everything that a client can be told went wrong."""

    INVALID_JSON = Kind(400, "invalid_request_error", "invalid_json")
    INVALID_TYPE = Kind(400, "invalid_request_error", "invalid_type")
    INVALID_VALUE = Kind(400, "invalid_request_error", "invalid_value")
    MISSING = Kind(400, "invalid_request_error", "missing_required_parameter")
    UNSUPPORTED = Kind(400, "invalid_request_error", "unsupported_parameter")
    CONTEXT_LENGTH = Kind(400, "invalid_request_error", "context_length_exceeded")
    NEVER_FITS = Kind(400, "invalid_request_error", "request_never_fits")
    INVALID_KEY = Kind(401, "authentication_error", "invalid_api_key")
    NOT_FOUND = Kind(404, "invalid_request_error", "not_found")
    MODEL_NOT_FOUND = Kind(404, "invalid_request_error", "model_not_found")
    WRONG_METHOD = Kind(405, "invalid_request_error", "method_not_allowed")
    QUEUE_FULL_503 = Kind(503, "server_error", "queue_full")
    QUEUE_FULL_429 = Kind(429, "rate_limit_error", "queue_full")
    QUEUE_TIME = Kind(503, "server_error", "queue_time_exceeded")
    DEADLINE = Kind(504, "server_error", "deadline_exceeded")
    UNREACHABLE = Kind(504, "server_error", "deadline_unreachable")
    DRAINING = Kind(503, "server_error", "shutting_down")
    ID_IN_USE = Kind(409, "invalid_request_error", "request_id_in_use")
    TOO_LARGE = Kind(413, "invalid_request_error", "body_too_large")
    INVALID_HTTP = Kind(400, "invalid_request_error", "invalid_http")
    REQUEST_TIMEOUT = Kind(408, "invalid_request_error", "request_timeout")
    HEADERS_TOO_LARGE = Kind(431, "invalid_request_error", "headers_too_large")
    TOO_MANY_CONNECTIONS = Kind(503, "server_error", "too_many_connections")
    CLIENT_GONE = Kind(499, "client_closed_request", "client_closed_request")
    INTERNAL = Kind(500, "server_error", "internal_error")
    ENGINE_DEAD = Kind(503, "server_error", "engine_unavailable")


_MAX_MESSAGE_CHARS = 2000  # what a client sent wrong may be megabytes: it is not sent back whole


class ApiError(Exception):
    """An answer that is not the one asked for. `param` names the field at fault, if one is.

    `retry_after_s`: when it is worth trying again, whole seconds; goes into Retry-After.
    """

    def __init__(
        self,
        problem: Problem,
        message: str,
        param: str | None = None,
        retry_after_s: int | None = None,
    ) -> None:
        if len(message) > _MAX_MESSAGE_CHARS:
            message = message[:_MAX_MESSAGE_CHARS] + " …"
        super().__init__(message)
        self.problem = problem
        self.message = message
        self.param = param
        self.retry_after_s = retry_after_s

    @property
    def status(self) -> int:
        return self.problem.value.status

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.retry_after_s is None else {"retry-after": str(self.retry_after_s)}

    def answer(self) -> ErrorAnswer:
        kind = self.problem.value
        return ErrorAnswer(ErrorBody(self.message, kind.type, self.param, kind.code))

    def body(self) -> dict[str, Any]:
        return cast(dict[str, Any], msgspec.to_builtins(self.answer()))


def invalid_value(message: str, param: str) -> ApiError:
    return ApiError(Problem.INVALID_VALUE, message, param)
