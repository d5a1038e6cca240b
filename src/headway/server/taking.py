"""Until when an answer is on its way: a client may take it more slowly than it is written."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from starlette.requests import HTTPConnection

UNTAKEN = "num_untaken_bytes"  # in a connection's state
# Less is on its way to any client: the end of an answer, until it is acknowledged.
_BACKLOG_BYTES = 16 << 10
_LOOK_S = 0.01
NumUntaken = Callable[[], int]


def num_untaken_of(http: HTTPConnection) -> NumUntaken:
    """Bytes that were written and not acknowledged; always 0 of a connection that cannot tell."""
    return getattr(http.state, UNTAKEN, lambda: 0)


class Takers:
    """Clients who have not taken all that was written for them."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def once_taken(self, num_untaken: NumUntaken, tell: Callable[[], None]) -> None:
        """Tell when hardly anything of an answer, whose end was written, is left to be taken."""
        if num_untaken() < _BACKLOG_BYTES:
            tell()
            return
        task = asyncio.get_running_loop().create_task(_follow(num_untaken, tell))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _follow(num_untaken: NumUntaken, tell: Callable[[], None]) -> None:
    """Looks the less often the longer it takes: thousands who do not read must cost little."""
    began_s = time.monotonic()
    while num_untaken() >= _BACKLOG_BYTES:
        waited_s = time.monotonic() - began_s
        await asyncio.sleep(max(_LOOK_S, waited_s / 16))
    tell()
