"""The OpenAPI schema: each route says what it takes and gives, in the structs that it uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from starlette.responses import Response

from headway.insight.explain.report import Explanation
from headway.server.errors import Problem
from headway.server.schema import answers, bodies, responses, service
from headway.server.schema.answers import ErrorAnswer
from headway.server.schema.fields import LABELS, NO_EFFECT

_REF = "#/components/schemas/{name}"
# What routes refer to; what these refer to comes along.
_STRUCTS: tuple[type, ...] = (
    answers.Completion,
    answers.ChatCompletion,
    answers.ChatChunk,
    answers.ErrorAnswer,
    bodies.CompletionBody,
    bodies.ChatBody,
    bodies.TokenizeBody,
    bodies.DetokenizeBody,
    responses.ResponsesBody,
    responses.ResponseObject,
    *responses.EVENTS,
    service.ModelCard,
    service.ModelList,
    service.RequestList,
    Explanation,
    service.Tokens,
    service.Text,
    service.TokenizerCard,
    service.HealthReport,
    service.Version,
    service.Load,
)

READING_PROBLEMS = (
    Problem.INVALID_JSON,
    Problem.INVALID_TYPE,
    Problem.INVALID_VALUE,
    Problem.MISSING,
    Problem.UNSUPPORTED,
    Problem.MODEL_NOT_FOUND,
    Problem.TOO_LARGE,
)
GENERATION_PROBLEMS = (
    *READING_PROBLEMS,
    Problem.CONTEXT_LENGTH,
    Problem.NEVER_FITS,
    Problem.ID_IN_USE,
    Problem.QUEUE_FULL_429,
    Problem.QUEUE_FULL_503,
    Problem.QUEUE_TIME,
    Problem.DRAINING,
    Problem.ENGINE_DEAD,
    Problem.DEADLINE,
    Problem.UNREACHABLE,
)
# What any path can say: no key, a fault of the server's own, a server that goes down.
_EVERYWHERE = (Problem.INVALID_KEY, Problem.INTERNAL, Problem.DRAINING)
_GENERATION_HEADERS = {
    "x-request-id": "This request's id; the answer's id ends in it. Goes before the body's.",
    "x-request-deadline": "Give up so many seconds from now; a decimal number.",
    "x-explain": "1: as the field explain of a body.",
}


def documented(
    answer: type | None,
    body: type[msgspec.Struct] | None = None,
    *,
    stream: Sequence[type[msgspec.Struct]] = (),
    problems: Sequence[Problem] = (),
    plain_text: bool = False,
    also: Mapping[int, type[msgspec.Struct]] | None = None,
) -> dict[str, Any]:
    """Keyword arguments for a route. `stream`: what the events of a streamed answer hold."""
    content: dict[str, Any] = {}
    if answer is not None:
        content["application/json"] = {"schema": _ref(answer)}
    if stream:
        content["text/event-stream"] = {"schema": _event(stream)}
    if plain_text:
        content["text/plain"] = {"schema": {"type": "string"}}
    by_status: dict[int | str, Any] = {200: {"description": "The answer"}}
    if content:
        by_status[200]["content"] = content
    for status, struct in (also or {}).items():
        by_status[status] = _json_response("Not well", struct)
    for status in sorted({p.value.status for p in (*problems, *_EVERYWHERE)} - {*by_status}):
        codes = [p.value.code for p in (*problems, *_EVERYWHERE) if p.value.status == status]
        by_status[status] = _json_response(" or ".join(dict.fromkeys(codes)), ErrorAnswer)
    extra: dict[str, Any] = {}
    if body is not None:
        schema = {"schema": _ref(body)}
        extra["requestBody"] = {"required": True, "content": {"application/json": schema}}
    if problems is GENERATION_PROBLEMS:
        extra["parameters"] = [_header(*item) for item in _GENERATION_HEADERS.items()]
    return {"responses": by_status, "openapi_extra": extra, "response_class": Response}


def describe(app: FastAPI) -> None:
    """Replace the app's generated schema by one with the bodies and answers of its routes."""
    app.openapi = _Description(app)  # type: ignore[method-assign]


class _Description:
    """Made when it is first asked for: it needs every route."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._made: dict[str, Any] | None = None

    def __call__(self) -> dict[str, Any]:
        if self._made is None:
            self._made = self._make()
        return self._made

    def _make(self) -> dict[str, Any]:
        app = self._app
        schema = get_openapi(
            title=app.title,
            version=app.version,
            description="Headway speaks OpenAI's API, with vLLM's fields.",
            routes=app.routes,
        )
        for path in schema["paths"].values():
            for operation in path.values():
                operation["responses"].pop("422", None)  # FastAPI's own, never sent here
        schema["components"] = {"schemas": _components()}
        return schema


def _components() -> dict[str, Any]:
    _, components = msgspec.json.schema_components(_STRUCTS, ref_template=_REF)
    for body in (bodies.CompletionBody, bodies.ChatBody):
        properties = components[body.__name__]["properties"]
        for name, reason in (LABELS | NO_EFFECT).items():
            properties[name] = {"description": f"Accepted, without effect: {reason}."}
    return components


def _ref(struct: type) -> dict[str, str]:
    return {"$ref": _REF.format(name=struct.__name__)}


def _event(structs: Sequence[type[msgspec.Struct]]) -> dict[str, Any]:
    """One event; an error in the middle of a stream is told in the last one."""
    data = {
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": {"anyOf": [*map(_ref, structs), _ref(ErrorAnswer)]},
    }
    return {
        "type": "object",
        "description": "One server-sent event; of completions the last has the data [DONE].",
        "properties": {"event": {"type": "string"}, "data": data},
        "required": ["data"],
    }


def _json_response(description: str, struct: type[msgspec.Struct]) -> dict[str, Any]:
    return {"description": description, "content": {"application/json": {"schema": _ref(struct)}}}


def _header(name: str, description: str) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": description, "schema": {"type": "string"}}
