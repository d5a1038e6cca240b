"""Real pages of Headway's metrics, from the scheduler in a simulated world on a virtual clock."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headway.core.config import SchedulerConfig
from headway.core.events import Event
from headway.core.scheduler import Scheduler
from headway.drive.clock import VirtualClock
from headway.drive.loop import EngineLoop
from headway.drive.ports import Command, Submit
from headway.engine.build import read_stats
from headway.insight.doctor.page import Page, read_page
from headway.insight.metrics import Metrics
from headway.simulator.collector import Collector
from headway.simulator.executor import CostModelExecutor
from headway.simulator.inbox import Source, WorkloadInbox
from headway.simulator.result import Result
from headway.simulator.script import SyntheticScript
from headway.simulator.workload.spec import from_spec
from tests.insight.doctor.own_log import OwnLog
from tests.simulator.worlds import PerToken

BLOCK = 16
# About an 8B model on a large GPU: 6 ms to read the weights, 30 us for each token.
STEP_TIMES = PerToken(step=6_000_000, token=30_000, attended=2)


class SimulatedServer:
    """Serves a workload; `pages` are its metrics at the ends of equal stretches of its time.

    `settings` are of SchedulerConfig; `pool`: tokens of KV cache.
    """

    def __init__(
        self,
        workload: Mapping[str, Any],
        *,
        pool: int = 100_000,
        looks: tuple[float, float, int] = (2.0, 8.0, 11),
        **settings: Any,
    ) -> None:
        usual = {"max_num_seqs": 64, "max_num_batched_tokens": 2048, "max_model_len": 32_768}
        self.config = SchedulerConfig(block_size=BLOCK, **{**usual, **settings})
        self.clock = VirtualClock(1_000_000_000)
        self.scheduler = Scheduler(self.config, pool // BLOCK)
        self.metrics = Metrics(
            "m", max_model_len=self.config.max_model_len, cache_config=self._cache_config
        )
        self.pages: list[tuple[Page, float]] = []
        self.log = OwnLog(self.scheduler, self.clock)
        first, last, count = looks
        self._due = [1.0 + first + (last - first) * n / (count - 1) for n in range(count)]
        with self.log:
            self._serve(workload)

    def _serve(self, workload: Mapping[str, Any]) -> None:
        traffic = from_spec({"seed": 1, **workload}).traffic()

        def follow_up(script: SyntheticScript, now_ns: int) -> list[SyntheticScript]:
            return [SyntheticScript(c) for c in traffic.follow_up(script.client, now_ns)]

        source = Source(map(SyntheticScript, traffic.arrivals()), follow_up)
        inbox = _HeardInbox(WorkloadInbox(self.clock, source), self)
        collector = Collector(self.scheduler, inbox.inbox)
        executor = CostModelExecutor(self.clock, STEP_TIMES, inbox.inbox, collector)
        loop = EngineLoop(
            self.scheduler,
            clock=self.clock,
            inbox=inbox,
            executor=executor,
            listeners=(inbox.inbox, collector, executor, self),
        )
        while self._due:
            if not loop.turn() and not inbox.wait(self.scheduler.next_due_ns()):
                self._look(float("inf"))
        self.result = Result.of(self.config, self.scheduler.pool.num_blocks, collector)

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        self.metrics.on_events(events, now_ns)
        self.metrics.on_stats(read_stats(self.scheduler))
        self.log.on_events(events, now_ns)
        self._look(now_ns / 1e9)

    def passed(self, now_ns: int) -> None:
        """Time went by with nothing to do."""
        self._look(now_ns / 1e9)

    def _look(self, now_s: float) -> None:
        """The first state at or after each time that is due, as of that time."""
        while self._due and self._due[0] <= now_s:
            page = read_page(self.metrics.exposition()[0].decode())
            self.pages.append((page, self._due.pop(0)))
            self.log.look(self.pages[-1][1])

    def _cache_config(self) -> dict[str, object]:
        num_tokens = self.scheduler.pool.num_blocks * BLOCK
        config = self.config
        return {
            "block_size": BLOCK,
            "num_gpu_blocks": self.scheduler.pool.num_blocks,
            "kv_cache_size_tokens": num_tokens,
            "kv_policy": config.kv_policy,
            "max_num_seqs": config.max_num_seqs,
            "max_num_batched_tokens": config.max_num_batched_tokens,
            "max_model_len": config.max_model_len,
        }


class _HeardInbox:
    """The inbox, with the metrics told of what comes and the server of time that passes."""

    def __init__(self, inbox: WorkloadInbox, server: SimulatedServer) -> None:
        self.inbox = inbox
        self._server = server

    def take(self) -> list[Command]:
        commands = self.inbox.take()
        for command in commands:
            if isinstance(command, Submit):
                for fold in (self._server.metrics, self._server.log):
                    fold.on_submitted(command.request, self._server.clock.now_ns())
        return commands

    def wait(self, until_ns: int | None = None) -> bool:
        next_ns = self.inbox.next_ns()
        if next_ns is not None:
            self._server.passed(next_ns)
        return self.inbox.wait(until_ns)
