"""GET /v1/models."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest

from headway.server.frontend import Frontend, frontend_of

router = APIRouter()
_STARTED_AT = int(time.time())


@router.get("/v1/models")
async def list_models(http: HttpRequest) -> dict[str, Any]:
    frontend = frontend_of(http)
    names = frontend.settings.served_model_names
    return {"object": "list", "data": [_model(frontend, name) for name in names]}


@router.get("/v1/models/{name:path}")
async def show_model(http: HttpRequest, name: str) -> dict[str, Any]:
    frontend = frontend_of(http)
    return _model(frontend, frontend.door.check_model(name))


def _model(frontend: Frontend, name: str) -> dict[str, Any]:
    return {
        "id": name,
        "object": "model",
        "created": _STARTED_AT,
        "owned_by": "headway",
        "root": frontend.client.facts.model,
        "parent": None,
        "max_model_len": frontend.client.facts.max_model_len,
    }
