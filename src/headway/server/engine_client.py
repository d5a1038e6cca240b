"""The API process's view of the engine: requests down, updates up, whichever life it is in."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

import msgspec

from headway.core.events import Event
from headway.core.request import FinishReason, Request
from headway.server.audience import Audience, Fold, StepFold
from headway.server.brakes import Brakes, NeverFitsError, QueueFullError
from headway.server.engine_link import EngineStartError, StartEngine
from headway.server.ledger import IdInUseError, Ledger
from headway.server.liveness import Health, Liveness
from headway.server.subscription import EngineDeadError, Subscription, UpdateRouter
from headway.server.supervisor import Supervisor
from headway.wire import (
    AliveMessage,
    EngineFacts,
    EngineStats,
    FromEngine,
    ResetPrefixCacheMessage,
    StepTrace,
    SubmitMessage,
    TurnMessage,
    WithdrawMessage,
    encode,
    unpack_events,
)

__all__ = ["EngineClient", "EngineStartError", "Fold", "StartEngine", "StepFold", "Watcher"]
_NS = 1_000_000_000


class Watcher(Protocol):
    """Something that is told what never reached the engine, and that there is a new one."""

    def on_refused(self, cause: str) -> None: ...
    def on_restarted(self) -> None: ...


class EngineClient:
    """One event loop uses it, from `wait_ready` on. The engine starts at once and is started again
    whenever it dies, `restart_limit` times in a row (None: always).

    `facts` are those of the engine that runs, or that ran last: read them each time.
    """

    def __init__(
        self,
        start_engine: StartEngine,
        *,
        restart_limit: int | None = None,
        health_timeout_s: float = 10.0,
    ) -> None:
        self._timeout_ns = int(health_timeout_s * _NS)
        self._router = UpdateRouter()
        self._ledger = Ledger()
        self.brakes = Brakes(self._ledger)
        self._audience = Audience()
        self._watchers: list[Watcher] = []
        self._liveness = Liveness(time.monotonic_ns(), self._timeout_ns)
        self._facts: EngineFacts | None = None
        self._death: str | None = None  # why there is no engine
        self._closing: str | None = None  # why there will be none
        self.is_draining = False
        self.stats: EngineStats | None = None
        self._supervisor = Supervisor(start_engine, self, restart_limit)

    @property
    def facts(self) -> EngineFacts:
        assert self._facts is not None, "wait_ready comes first"
        return self._facts

    @property
    def engine_pid(self) -> int:
        """Of the engine that runs, or ran last."""
        return self._supervisor.link.process.pid

    def add_fold(self, fold: Fold) -> None:
        self._audience.add(fold)

    def add_step_fold(self, fold: StepFold) -> None:
        self._audience.add_step_fold(fold)

    def catch_up(self) -> None:
        """Tell the folds what they have not heard yet. For who is about to ask one."""
        self._audience.catch_up()

    def add_watcher(self, watcher: Watcher) -> None:
        self._watchers.append(watcher)

    async def wait_ready(self) -> EngineFacts:
        """Wait until the engine has loaded its model. Raises EngineStartError."""
        await self._supervisor.wait_ready()
        return self.facts

    def check_room(self, num_sequences: int, tenant: str = "") -> None:
        """Raises what `submit` of so many sequences would, before any work."""
        try:
            self.brakes.check(num_sequences, tenant)
        except (QueueFullError, NeverFitsError) as error:
            self.refused(error.cause)
            raise

    def retry_after_s(self) -> int:
        """When it is worth trying again, from the measured rate; whole seconds."""
        return self.brakes.retry_after_s()

    def submit(self, requests: Sequence[Request]) -> Subscription:
        """Hand the requests, all of one tenant, to the engine, all or none.

        Raises EngineDeadError when there is no engine, IdInUseError for an id that is under way,
        QueueFullError or NeverFitsError when the brakes say so.
        """
        if self._death is not None or self._closing is not None:
            self.refused("engine_dead")
            raise self._dead_error()
        taken = next((r.request_id for r in requests if r.request_id in self._ledger), None)
        if taken is not None:
            self.refused("id_in_use")
            raise IdInUseError(taken)
        self.check_room(sum(r.sampling.n for r in requests), requests[0].tenant)
        messages = [encode(SubmitMessage(request)) for request in requests]  # may raise: first
        now_ns = time.monotonic_ns()
        if not self._has_work():
            self._liveness.on_progress(now_ns)
        subscription = self._router.open(requests, self._withdraw)
        for request, message in zip(requests, messages, strict=True):
            self._ledger.on_submitted(request, now_ns)
            self.brakes.on_submitted(request, now_ns)
            self._audience.submitted(request, now_ns)
            self._send(message)
        return subscription

    def refused(self, cause: str) -> None:
        """Count a request that was turned away at the door."""
        for watcher in self._watchers:
            watcher.on_refused(cause)

    def reset_prefix_cache(self) -> None:
        """Tell the engine to forget which blocks hold what."""
        self._send(encode(ResetPrefixCacheMessage()))

    def health(self) -> Health:
        found = self._liveness.health(time.monotonic_ns(), has_work=self._has_work())
        if self.is_draining or self._closing is not None:
            return Health(False, self._closing or "draining", found.last_turn_age_s)
        if self._death is not None:
            return Health(False, str(self._dead_error()), found.last_turn_age_s)
        return found

    def drain(self) -> None:
        """Say from now on that the server is about to leave; what runs goes on."""
        self.is_draining = True

    def end_requests(self, reason: str) -> None:
        """End everything under way with a clear error, and refuse what comes."""
        if self._closing is None:
            self._closing = reason
            self._end_all(reason)

    async def close(self) -> None:
        """Stop the engine, politely and then not, and remove the sockets."""
        self.end_requests("the server is shutting down")
        await self._supervisor.close()

    def kill(self) -> None:
        """Leave nothing behind, at once; for a process that is about to exit."""
        self._supervisor.link.kill()
        self._supervisor.link.remove()

    def on_message(self, message: FromEngine) -> None:
        """The supervisor's call, as are the two below."""
        if self._closing is not None:
            return  # its end was told already
        if isinstance(message, TurnMessage):
            self._on_turn(message)
        elif isinstance(message, AliveMessage):
            self._liveness.on_alive(message, time.monotonic_ns())

    def on_ready(self, facts: EngineFacts) -> None:
        is_restart = self._facts is not None
        self._facts = facts
        self._death = None
        self._liveness = Liveness(time.monotonic_ns(), self._timeout_ns)
        if is_restart:
            for watcher in self._watchers:
                watcher.on_restarted()

    def on_death(self, reason: str) -> None:
        self._death = reason
        self._end_all(f"engine died: {reason}")

    def _end_all(self, reason: str) -> None:
        """What the engine will not say any more is said here, so that every fold adds up."""
        stats = None if self.stats is None else _nothing_left(self.stats)
        self._note(self._ledger.last_words(reason), time.monotonic_ns(), stats)
        self._audience.catch_up()  # before who asks whether there is a new engine
        self.stats = None
        self._router.fail_all(self._dead_error())

    def _dead_error(self) -> EngineDeadError:
        if self._closing is not None:
            return EngineDeadError(self._closing, 1)
        outlook = self._supervisor.outlook()
        return EngineDeadError(
            f"engine died: {self._death}; {outlook}", self._supervisor.retry_after_s()
        )

    def _has_work(self) -> bool:
        stats = self.stats
        return self._ledger.num_sequences > 0 or (
            stats is not None and stats.num_running + stats.num_waiting > 0
        )

    def _withdraw(self, request_id: str, index: int | None, reason: FinishReason) -> None:
        self._send(encode(WithdrawMessage(request_id, index, reason)))

    def _send(self, message: bytes) -> None:
        self._supervisor.link.send(message)

    def _on_turn(self, turn: TurnMessage) -> None:
        events = unpack_events(turn.events)
        self._router.deliver(events, turn.logprobs)
        self._note(events, turn.now_ns, turn.stats, turn.step)
        self.stats = turn.stats
        self._liveness.on_turn(turn.stats, time.monotonic_ns())

    def _note(
        self,
        events: Sequence[Event],
        now_ns: int,
        stats: EngineStats | None,
        step: StepTrace | None = None,
    ) -> None:
        """What decides who may come in is noted at once, the rest is told soon."""
        self._ledger.on_events(events, now_ns)
        self.brakes.on_events(events, now_ns)
        if stats is not None:
            self.brakes.on_stats(stats)
        self._audience.tell(events, now_ns, stats, step)


def _nothing_left(stats: EngineStats) -> EngineStats:
    """The figures of an engine that is gone."""
    return msgspec.structs.replace(
        stats,
        num_running=0,
        num_waiting=0,
        num_held_blocks=0,
        num_cached_blocks=0,
        num_resident_tokens=0,
        num_backlog_tokens=0,
        waiting_reasons={},
    )
