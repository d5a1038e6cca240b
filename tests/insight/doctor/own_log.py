"""The log of a simulated server, as `headway serve` writes it, on a virtual clock."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec

from headway.core.events import Event, Preempted
from headway.core.request import Request
from headway.core.scheduler import Scheduler
from headway.drive.clock import VirtualClock
from headway.engine.build import read_stats
from headway.server.log_stats import StatsLog, start_lines
from headway.server.preemption_log import PreemptionLog
from tests.server.fake_engine import FACTS


class OwnLog(logging.Handler):
    """Write while it is entered; `lines` has what was written."""

    def __init__(self, scheduler: Scheduler, clock: VirtualClock) -> None:
        super().__init__()
        self.lines: list[str] = []
        self._clock, self._scheduler = clock, scheduler
        self._stats, self._preemptions = StatsLog(), PreemptionLog()
        self._victims: list[str] = []
        self._last_s = clock.now_ns() / 1e9
        self._logger = logging.getLogger("headway")
        self._form = logging.Formatter("%(levelname)s %(asctime)s %(message)s")

    @property
    def first_three(self) -> str:
        """Of the victims, who are different ones."""
        first, second, third = self._victims[:3]
        return f"{first}, {second} and {third}"

    def __enter__(self) -> None:
        self._level = self._logger.level
        self._logger.setLevel(logging.INFO)
        self._logger.addHandler(self)
        for line in start_lines(self._facts(), []):
            self._logger.info(line)

    def __exit__(self, *error: object) -> None:
        self._logger.removeHandler(self)
        self._logger.setLevel(self._level)

    def emit(self, record: logging.LogRecord) -> None:
        record.created = self._clock.now_ns() / 1e9
        record.msecs = record.created % 1 * 1000
        self.lines.append(self._form.format(record))

    def on_submitted(self, request: Request, now_ns: int) -> None:
        self._stats.on_submitted(request, now_ns)

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        self._victims += [event.request_id for event in events if isinstance(event, Preempted)]
        self._preemptions.on_events(events, now_ns)
        self._stats.on_events(events, now_ns)

    def look(self, now_s: float) -> None:
        self._stats.on_stats(read_stats(self._scheduler))
        self._logger.log(*self._stats.line(now_s - self._last_s))
        self._last_s = now_s

    def _facts(self) -> object:
        config, pool = self._scheduler.config, self._scheduler.pool
        return msgspec.structs.replace(
            FACTS,
            block_size=config.block_size,
            num_blocks=pool.num_blocks,
            max_model_len=config.max_model_len,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
        )
