"""Keeps an engine running: starts it, follows it, and starts it again when it has died."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import Protocol

from headway.server.engine_link import EngineLink, EngineStartError, StartEngine
from headway.wire import EngineFacts, FromEngine

FIRST_DELAY_S = 1.0
MAX_DELAY_S = 30.0
_HEALTHY_AFTER_S = 60.0
_log = logging.getLogger("headway")


class Backoff:
    """1, 2, 4 … 30 seconds before the next start; from the beginning after a minute of life."""

    def __init__(self) -> None:
        self.num_deaths = 0
        self._delay_s = FIRST_DELAY_S

    def next_delay_s(self, lived_s: float) -> float:
        if lived_s >= _HEALTHY_AFTER_S:
            self._delay_s = FIRST_DELAY_S
            self.num_deaths = 0
        self.num_deaths += 1
        delay_s = self._delay_s
        self._delay_s = min(MAX_DELAY_S, 2 * delay_s)
        return delay_s


class Owner(Protocol):
    """Who is told how the engine fares."""

    def on_message(self, message: FromEngine) -> None: ...
    def on_ready(self, facts: EngineFacts) -> None: ...
    def on_death(self, reason: str) -> None: ...


class Supervisor:
    """`restart_limit`: deaths in a row, each within a minute of its start, after which it gives
    up; None never does, 0 does not even try once. The owner hears `on_ready` when an engine can
    be used and `on_death` when it cannot any more.
    """

    def __init__(
        self, start_engine: StartEngine, owner: Owner, restart_limit: int | None = None
    ) -> None:
        self._start_engine = start_engine
        self._owner = owner
        self._restart_limit = restart_limit
        self._backoff = Backoff()
        self._task: asyncio.Task[None] | None = None
        self._began_s = time.monotonic()
        self._start_took_s = 0.0
        self._next_start_s: float | None = None
        self._last_failure = ""
        self.has_given_up = False
        self.link = EngineLink(start_engine)

    async def wait_ready(self) -> None:
        """For the first start: its failure is the caller's. Raises EngineStartError."""
        facts = await self.link.wait_ready()
        self._started(facts)
        self._task = asyncio.create_task(self._keep_running())

    def outlook(self) -> str:
        """What comes next, while there is no engine."""
        if self.has_given_up:
            return f"not restarted any more (deaths in a row: {self._backoff.num_deaths})"
        if self._next_start_s is None:
            return "restarting"
        return f"restarting in {max(0.0, self._next_start_s - time.monotonic()):.0f} s"

    def retry_after_s(self) -> int | None:
        """Until an engine should be there again; None when none will come."""
        if self.has_given_up:
            return None
        now_s = time.monotonic()
        begins_s = self._began_s if self._next_start_s is None else self._next_start_s
        return min(60, max(1, math.ceil(begins_s + self._start_took_s - now_s)))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self.link.close()

    async def _keep_running(self) -> None:
        while True:
            reason = await self.link.follow(self._owner.on_message)
            while not await self._start_again(reason):
                if self.has_given_up:
                    return
                reason = self._last_failure

    async def _start_again(self, reason: str) -> bool:
        delay_s = self._backoff.next_delay_s(time.monotonic() - self._began_s)
        limit = self._restart_limit
        self.has_given_up = limit is not None and self._backoff.num_deaths > limit
        self._next_start_s = time.monotonic() + delay_s
        _log.error("The engine died: %s; %s", reason, self.outlook())
        self._owner.on_death(reason)
        try:
            self.link.kill()
            await self.link.close()
            if self.has_given_up:
                return False
            await asyncio.sleep(self._next_start_s - time.monotonic())
            await self._start()
            return True
        except EngineStartError as error:
            self._last_failure = str(error)
        except Exception as error:  # whatever it is, the next try is what keeps the server alive
            _log.exception("The engine cannot be started")
            self._last_failure = repr(error)
        return False

    async def _start(self) -> None:
        self._next_start_s = None
        self._began_s = time.monotonic()
        self.link = EngineLink(self._start_engine)
        self._started(await self.link.wait_ready())
        _log.info("The engine runs again, %.1f s after it was started", self._start_took_s)

    def _started(self, facts: EngineFacts) -> None:
        self._start_took_s = time.monotonic() - self._began_s
        self._owner.on_ready(facts)
