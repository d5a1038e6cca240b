"""GET /metrics, for Prometheus."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from headway.server.frontend import frontend_of
from headway.server.openapi import documented

router = APIRouter()


@router.get("/metrics", **documented(None, plain_text=True))
async def metrics(http: HttpRequest) -> Response:
    frontend = frontend_of(http)
    frontend.client.catch_up()
    text, content_type = frontend.metrics.exposition()
    return Response(text, headers={"content-type": content_type})
