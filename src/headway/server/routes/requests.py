"""GET /v1/requests: why requests took as long as they did."""

from __future__ import annotations

from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from headway.insight.explain.report import Explanation
from headway.server.errors import Problem, invalid_value
from headway.server.explaining import MOST_LISTED, key_tenant, opened
from headway.server.frontend import frontend_of
from headway.server.openapi import documented
from headway.server.schema.service import RequestList
from headway.server.sse import JsonAnswer

router = APIRouter()
_USUALLY_LISTED = "10"


@router.get(
    "/v1/requests",
    **documented(RequestList, problems=(Problem.INVALID_VALUE, Problem.NOT_FOUND)),
)
async def list_requests(http: HttpRequest, slowest: str = _USUALLY_LISTED) -> Response:
    """The slowest of those that are remembered and of those under way, the slowest first."""
    explanations = opened(frontend_of(http).explanations)
    number = int(slowest) if slowest.isascii() and slowest.isdigit() and len(slowest) < 9 else 0
    if not 1 <= number <= MOST_LISTED:
        raise invalid_value(f"slowest must be from 1 to {MOST_LISTED}, got {slowest!r}", "slowest")
    return JsonAnswer(RequestList(data=await explanations.slowest(number, key_tenant(http))))


@router.get(
    "/v1/requests/{request_id:path}/explain",
    **documented(Explanation, problems=(Problem.NOT_FOUND,)),
)
async def explain_request(http: HttpRequest, request_id: str) -> Response:
    """Where the time of one request went, and because of whom; also while it is under way."""
    explanations = opened(frontend_of(http).explanations)
    return JsonAnswer(explanations.find(request_id, key_tenant(http)))
