"""GET /v1/models."""

from __future__ import annotations

import time

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from headway.server.errors import Problem
from headway.server.frontend import Frontend, frontend_of
from headway.server.openapi import documented
from headway.server.schema.service import ModelCard, ModelList
from headway.server.sse import JsonAnswer

router = APIRouter()
_STARTED_AT = int(time.time())


@router.get("/v1/models", **documented(ModelList))
async def list_models(http: HttpRequest) -> Response:
    """Every name that requests may use."""
    frontend = frontend_of(http)
    names = frontend.settings.served_model_names
    return JsonAnswer(ModelList(data=[_model(frontend, name) for name in names]))


@router.get("/v1/models/{name:path}", **documented(ModelCard, problems=(Problem.MODEL_NOT_FOUND,)))
async def show_model(http: HttpRequest, name: str) -> Response:
    """One of them."""
    frontend = frontend_of(http)
    return JsonAnswer(_model(frontend, frontend.door.check_model(name)))


def _model(frontend: Frontend, name: str) -> ModelCard:
    facts = frontend.client.facts
    return ModelCard(
        id=name, created=_STARTED_AT, root=facts.model, max_model_len=facts.max_model_len
    )
