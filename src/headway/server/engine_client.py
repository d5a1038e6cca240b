"""The API process's end of the line to the engine process: requests down, updates up."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Protocol

import zmq
import zmq.asyncio

from headway.core.events import Event, RefusalCause, Rejected
from headway.core.request import FinishReason, Request
from headway.server.brakes import Brakes
from headway.server.ledger import Ledger
from headway.server.liveness import Health, Liveness
from headway.server.subscription import EngineDeadError, Subscription, UpdateRouter
from headway.wire import (
    EngineFacts,
    EngineStats,
    FailedMessage,
    FromEngine,
    ReadyMessage,
    ResetPrefixCacheMessage,
    ShutdownMessage,
    SubmitMessage,
    TurnMessage,
    WithdrawMessage,
    decode_from_engine,
    encode,
    unpack_events,
)

StartEngine = Callable[[str, str], "subprocess.Popen[bytes]"]
_CHILD_POLL_S = 0.1
_log = logging.getLogger("headway")


class EngineStartError(Exception):
    """The engine did not come up; the message is one sentence for people."""


class Fold(Protocol):
    """Something that is told what is asked of the engine and what happens in it."""

    def on_submitted(self, request: Request, now_ns: int) -> None: ...
    def on_events(self, events: Sequence[Event], now_ns: int) -> None: ...
    def on_stats(self, stats: EngineStats) -> None: ...


class EngineClient:
    """Owns the sockets and the engine process. One event loop uses it, from `wait_ready` on.

    `start_engine(to_engine, from_engine)` starts the process, which connects to both addresses.
    It is called at once, so that the engine loads its weights while the caller does other work.
    """

    def __init__(self, start_engine: StartEngine) -> None:
        self._directory = tempfile.mkdtemp(prefix="headway-")  # mkdtemp makes it 0700
        to_engine = f"ipc://{self._directory}/to-engine"
        from_engine = f"ipc://{self._directory}/from-engine"
        self._sockets = zmq.asyncio.Context()
        self._sender = self._sockets.socket(zmq.PUSH, socket_class=zmq.Socket)  # type: ignore[arg-type]
        self._receiver = self._sockets.socket(zmq.PULL)
        for socket in (self._sender, self._receiver):
            socket.set_hwm(0)
            socket.setsockopt(zmq.LINGER, 200)
        self._sender.bind(to_engine)
        self._receiver.bind(from_engine)
        self._process = start_engine(to_engine, from_engine)
        self._router = UpdateRouter()
        self._ledger = Ledger()
        self.brakes = Brakes(self._ledger)
        self._folds: list[Fold] = [self._ledger, self.brakes]
        self._tasks: list[asyncio.Task[None]] = []
        self._liveness = Liveness(time.monotonic_ns())
        self._facts: EngineFacts | None = None
        self.stats: EngineStats | None = None

    @property
    def facts(self) -> EngineFacts:
        assert self._facts is not None, "wait_ready comes first"
        return self._facts

    def add_fold(self, fold: Fold) -> None:
        self._folds.append(fold)

    async def wait_ready(self) -> EngineFacts:
        """Wait until the engine has loaded its model. Raises EngineStartError."""
        while True:
            message = await self._receive_while_alive()
            if isinstance(message, ReadyMessage):
                break
            if isinstance(message, FailedMessage):
                raise EngineStartError(message.message)
        self._facts = message.facts
        self._liveness = Liveness(time.monotonic_ns())
        self._tasks = [
            asyncio.create_task(self._receive_all()),
            asyncio.create_task(self._watch_child()),
        ]
        return self._facts

    def check_room(self, num_sequences: int) -> None:
        """Raises QueueFullError where `submit` of so many sequences would, before any work."""
        self.brakes.check(num_sequences)

    def retry_after_s(self) -> int:
        """When it is worth trying again, from the measured rate; whole seconds."""
        return self.brakes.retry_after_s()

    def reset_prefix_cache(self) -> None:
        """Tell the engine to forget which blocks hold what."""
        self._send(encode(ResetPrefixCacheMessage()))

    def submit(self, requests: Sequence[Request]) -> Subscription:
        """Hand the requests to the engine, all or none.

        An id that is in use is answered by the subscription's first update, a Rejected. Raises
        EngineDeadError when there is no engine, QueueFullError when the brakes say so.
        """
        if self._liveness.death is not None:
            raise EngineDeadError(self._liveness.death)
        taken = [request for request in requests if request.request_id in self._ledger]
        if taken:
            return Subscription.refused(_id_in_use(taken[0]), self._router)
        self.brakes.check(sum(request.sampling.n for request in requests))
        messages = [encode(SubmitMessage(request)) for request in requests]  # may raise: first
        now_ns = time.monotonic_ns()
        if not self._has_work():
            self._liveness.on_progress(now_ns)
        subscription = self._router.open(requests, self._withdraw)
        for request, message in zip(requests, messages, strict=True):
            for fold in self._folds:
                fold.on_submitted(request, now_ns)
            self._send(message)
        return subscription

    def health(self) -> Health:
        return self._liveness.health(time.monotonic_ns(), has_work=self._has_work())

    def end_requests(self, reason: str) -> None:
        """End everything under way with a clear error, and refuse what comes."""
        self._declare_dead(reason)

    async def close(self) -> None:
        """Stop the engine, politely and then not, and remove the sockets."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._declare_dead("the server is shutting down")
        self._send(encode(ShutdownMessage()))
        await asyncio.to_thread(_stop, self._process)
        self._sender.close()
        self._receiver.close()
        self._sockets.term()
        shutil.rmtree(self._directory, ignore_errors=True)

    def _has_work(self) -> bool:
        stats = self.stats
        return bool(self._router) or (
            stats is not None and stats.num_running + stats.num_waiting > 0
        )

    def _withdraw(self, request_id: str, index: int | None, reason: FinishReason) -> None:
        self._send(encode(WithdrawMessage(request_id, index, reason)))

    def _send(self, message: bytes) -> None:
        # Never waits: there is no high-water mark. No peer means that the engine is gone, which
        # `_watch_child` tells everybody.
        with contextlib.suppress(zmq.Again):
            self._sender.send(message, zmq.NOBLOCK)

    async def _receive_while_alive(self) -> FromEngine:
        while not await self._receiver.poll(_CHILD_POLL_S * 1000):
            if self._process.poll() is not None and not await self._receiver.poll(200):
                raise EngineStartError(_obituary(self._process))
        return decode_from_engine(await self._receiver.recv())

    async def _receive_all(self) -> None:
        try:
            while True:
                message = decode_from_engine(await self._receiver.recv())
                if isinstance(message, TurnMessage):
                    self._on_turn(message)
                elif isinstance(message, FailedMessage):
                    self._declare_dead(message.message)
        except Exception as error:
            _log.exception("cannot follow the engine any longer")
            self._declare_dead(f"cannot follow the engine any longer: {error!r}")

    def _on_turn(self, turn: TurnMessage) -> None:
        events = unpack_events(turn.events)
        for fold in self._folds:
            fold.on_events(events, turn.now_ns)
            fold.on_stats(turn.stats)
        self._router.deliver(events, turn.logprobs)
        self.stats = turn.stats
        self._liveness.on_turn(turn.stats, time.monotonic_ns())

    async def _watch_child(self) -> None:
        while self._process.poll() is None:
            await asyncio.sleep(_CHILD_POLL_S)
        await asyncio.sleep(_CHILD_POLL_S)  # its last words may still be in the socket
        self._declare_dead(_obituary(self._process))

    def _declare_dead(self, reason: str) -> None:
        if self._liveness.death is None:
            self._liveness.death = reason
            self._router.fail_all(EngineDeadError(reason))


def _id_in_use(request: Request) -> Rejected:
    return Rejected(
        request.request_id,
        f"a request with the id {request.request_id!r} is under way: send another id, or wait",
        RefusalCause.ID_IN_USE,
    )


def _obituary(process: subprocess.Popen[bytes]) -> str:
    code = process.returncode
    how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
    return f"the engine process {how}"


def _stop(process: subprocess.Popen[bytes]) -> None:
    """The engine gets five seconds after it was told to stop, then one after SIGTERM."""
    for wait_s, escalate in ((5, process.terminate), (1, process.kill), (5, None)):
        try:
            process.wait(wait_s)
            return
        except subprocess.TimeoutExpired:
            if escalate is not None:
                escalate()
