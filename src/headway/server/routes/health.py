"""GET /health, /ping, /version and /load."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from headway import __version__
from headway.server.frontend import frontend_of
from headway.server.openapi import documented
from headway.server.schema.service import HealthReport, Load, Version
from headway.server.sse import JsonAnswer

router = APIRouter()
_HEALTH = documented(HealthReport, also={503: HealthReport})


@router.get("/health", **_HEALTH)
async def health(http: HttpRequest) -> Response:
    """200 while steps advance or nothing waits; 503 with the reason when dead or hung."""
    found = frontend_of(http).client.health()
    report = HealthReport(found.reason, round(found.last_turn_age_s, 3))
    return JsonAnswer(report, status=200 if found.is_ok else 503)


@router.get("/ping", **_HEALTH)
async def ping(http: HttpRequest) -> Response:
    """As /health, under the name that some clouds ask for."""
    return await health(http)


@router.post("/ping", **_HEALTH)
async def ping_by_post(http: HttpRequest) -> Response:
    """As /health."""
    return await health(http)


@router.get("/version", **documented(Version))
async def version() -> Response:
    return JsonAnswer(Version(__version__))


@router.get("/load", **documented(Load))
async def load(http: HttpRequest) -> Response:
    """How many requests of generating endpoints are under way."""
    return JsonAnswer(Load(frontend_of(http).open_calls.count))
