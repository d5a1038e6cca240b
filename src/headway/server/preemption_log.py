"""A line for each preemption, as long as they are few."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from headway.core.events import Aborted, Event, Preempted, Queued, Retired
from headway.core.request import Request
from headway.insight.logs.preempted import Untold, preemption_line
from headway.server.log_stats import INTERVAL_S
from headway.wire import EngineStats

_log = logging.getLogger("headway")
_MOST_LINES = 5  # in an interval of INTERVAL_S


class PreemptionLog:
    """A fold. Of more than a few in an interval the next line tells the sum."""

    def __init__(self) -> None:
        self._names: dict[int, str] = {}  # of requests, by sequence id
        self._since_ns = 0
        self._num_lines = 0
        self._untold = Untold()

    def on_submitted(self, request: Request, now_ns: int) -> None:
        """Only preemptions are logged here."""

    def on_stats(self, stats: EngineStats) -> None:
        """Only preemptions are logged here."""

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        for event in events:
            match event:
                case Queued():
                    self._names[event.sequence_id] = event.request_id
                case Preempted():
                    self._tell(event, now_ns)
                case Retired() | Aborted():
                    self._names.pop(event.sequence_id, None)

    def _tell(self, event: Preempted, now_ns: int) -> None:
        if now_ns - self._since_ns >= INTERVAL_S * 1e9:
            self._since_ns, self._num_lines = now_ns, 0
        if self._num_lines >= _MOST_LINES:
            self._untold.number += 1
            self._untold.tokens += event.num_lost_tokens
            return
        self._num_lines += 1
        beneficiary = self._names.get(event.beneficiary_id, "another")
        _log.info(preemption_line(event, beneficiary, self._untold))
        self._untold = Untold()
