"""POST /reset_prefix_cache, for tests and benchmarks."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from headway.server.errors import ApiError, Problem
from headway.server.frontend import frontend_of
from headway.server.openapi import documented

router = APIRouter()


@router.post("/reset_prefix_cache", **documented(None, problems=(Problem.NOT_FOUND,)))
async def reset_prefix_cache(http: HttpRequest) -> Response:
    """Forget which blocks hold what; running requests keep theirs."""
    frontend = frontend_of(http)
    if not frontend.settings.is_debug:
        raise ApiError(
            Problem.NOT_FOUND, "this is closed: start the server with --enable-dev-endpoints"
        )
    frontend.client.reset_prefix_cache()
    return Response()
