"""GET /health and GET /version."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse

from headway import __version__
from headway.server.frontend import frontend_of

router = APIRouter()


@router.get("/health")
async def health(http: HttpRequest) -> JSONResponse:
    """200 while steps advance or nothing waits; 503 with the reason when dead or hung."""
    found = frontend_of(http).client.health()
    body = {"status": found.reason, "last_turn_age_s": round(found.last_turn_age_s, 3)}
    return JSONResponse(body, status_code=200 if found.is_ok else 503)


@router.get("/version")
async def version() -> dict[str, str]:
    return {"version": __version__}
