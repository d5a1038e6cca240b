"""What SIGTERM and SIGINT do: the first lets running requests finish, the second stops at once."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable, Iterator

import uvicorn

from headway.server.doors import Traffic
from headway.server.engine_client import EngineClient

_GOODBYE_S = 5  # for errors to reach their clients after the shutdown timeout
_log = logging.getLogger("headway")


class HttpServer(uvicorn.Server):
    """Signals are not its business: the listening socket stays open until the last answer."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Leaving:
    """From the first signal on new requests get 503, health too, and what runs may go on for
    `timeout_s`; then it ends with an error, and the server with it.
    """

    def __init__(
        self,
        http: HttpServer,
        client: EngineClient,
        traffic: Traffic,
        timeout_s: float,
        clean_up: Callable[[], None],
    ) -> None:
        self._http = http
        self._client = client
        self._traffic = traffic
        self._timeout_s = timeout_s
        self._clean_up = clean_up
        self._task: asyncio.Task[None] | None = None

    def on_signal(self, number: int) -> None:
        if self._task is not None:
            self._stop_at_once(number)
        _log.info(
            "Shutting down: %d requests may finish within %g s; another signal stops at once",
            self._traffic.num_active,
            self._timeout_s,
        )
        self._client.drain()
        self._task = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        if not await self._traffic.until_none(self._timeout_s):
            num_left = self._traffic.num_active
            _log.warning("%d requests did not finish in time and end with an error", num_left)
            self._client.end_requests("the server is shutting down")
            await self._traffic.until_none(_GOODBYE_S)
        self._http.should_exit = True

    def _stop_at_once(self, number: int) -> None:
        """128 and the signal's number is how a shell names an end by signal."""
        _log.warning("Stopped at once by a second signal")
        self._client.kill()
        self._clean_up()
        sys.stderr.flush()
        os._exit(128 + number)
