"""Explanations of requests, for those who may see them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.requests import HTTPConnection

from headway.core.request import Request
from headway.insight.explain.explain import explain, glance, names_of
from headway.insight.explain.fold import Account, Explainer
from headway.insight.explain.life import Pool
from headway.insight.explain.report import Explanation, Glance
from headway.server.errors import ApiError, Problem, invalid_value
from headway.wire import EngineFacts

HEADER = "x-explain"
MOST_LISTED = 100
_OFF = (
    "this server explains no requests: start it with --explain-buffer N, for the latest N of them"
)
_SOMEBODY = "(another tenant)"
_YES, _NO = ("1", "true", "yes"), ("0", "false", "no")


class Explanations:
    """What the fold knows, in time to be asked. `catch_up` tells the fold what it has not heard.

    With a tenant a key may ask for requests of its own, and others have no names.
    """

    def __init__(
        self, facts: EngineFacts, buffer: int, catch_up: Callable[[], None] = lambda: None
    ) -> None:
        pool = Pool(
            block_size=facts.block_size,
            max_model_len=facts.max_model_len,
            reserves=facts.kv_policy == "reserve",
            max_tenant_seqs=facts.max_tenant_seqs,
        )
        self.fold = Explainer(pool, buffer=buffer)
        self._buffer = buffer
        self._catch_up = catch_up

    def of_body(self, requests: Sequence[Request], tenant: str | None) -> Explanation | None:
        """Of the requests of one body the one that ended last. None: nothing is known of them."""
        self._catch_up()
        accounts = self.fold.accounts_of(requests)
        if not accounts:
            return None
        now_ns = time.monotonic_ns()
        last = max(accounts, key=lambda a: now_ns if a.ended_ns is None else a.ended_ns)
        return self._explain(last, now_ns, tenant)

    def find(self, name: str, tenant: str | None) -> Explanation:
        """`name`: a request's id, its answer's, or the one that its client gave it.

        Raises ApiError for one that is not known, or is not this tenant's.
        """
        self._catch_up()
        found = map(self.fold.account, names_of(name))
        account = next((a for a in found if a is not None), None)
        if account is None or not _may_see(account, tenant):
            raise ApiError(
                Problem.NOT_FOUND,
                f"no request {name!r} is under way or among the latest {self._buffer:,} that are "
                f"over (--explain-buffer)",
            )
        return self._explain(account, time.monotonic_ns(), tenant)

    async def slowest(self, number: int, tenant: str | None) -> list[Glance]:
        """The slowest that are known, with those under way; lets others run in between."""
        self._catch_up()
        now_ns = time.monotonic_ns()
        found: list[Glance] = []
        for account in self.fold.slowest(number, now_ns, tenant):
            found.append(glance(self._explain(account, now_ns, tenant)))
            await asyncio.sleep(0)
        return found

    def _explain(self, account: Account, now_ns: int, tenant: str | None) -> Explanation:
        if tenant is None:
            return explain(self.fold, account, now_ns)

        def show(request_id: str) -> str:
            other = self.fold.account(request_id)
            return request_id if other is not None and _may_see(other, tenant) else _SOMEBODY

        return explain(self.fold, account, now_ns, show)


def opened(explanations: Explanations | None) -> Explanations:
    """Raises ApiError where there are none."""
    if explanations is None:
        raise ApiError(Problem.NOT_FOUND, _OFF)
    return explanations


def key_tenant(http: HTTPConnection) -> str | None:
    """The tenant that a key of several is; None: whoever asks may see everything."""
    tenant = http.scope.get("state", {}).get("key_tenant")
    return None if tenant is None else str(tenant)


@dataclass(frozen=True, slots=True)
class Asker:
    """Whether an answer is to have its explanation, and for whose eyes."""

    is_explained: bool = False
    tenant: str | None = None


def asker_of(http: HTTPConnection, field: bool, explanations: Explanations | None) -> Asker:
    """By the body's field or the header. Raises ApiError where it cannot be."""
    header = http.headers.get(HEADER)
    if header is not None and header.lower() not in (*_YES, *_NO):
        raise invalid_value(f"{HEADER} must be 1 or 0, got {header!r}", HEADER)
    asked = field or (header is not None and header.lower() in _YES)
    if asked and explanations is None:
        raise ApiError(Problem.UNSUPPORTED, _OFF, "explain" if field else HEADER)
    return Asker(asked, key_tenant(http))


def _may_see(account: Account, tenant: str | None) -> bool:
    return tenant is None or account.tenant == tenant
