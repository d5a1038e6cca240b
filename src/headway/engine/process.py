"""The engine process: the loop between two ZeroMQ sockets.

It connects to the API process's sockets, says Ready or Failed, and turns the loop until it is told
to shut down or the API process is gone.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable
from collections.abc import Sequence as SequenceOf
from pathlib import Path

import msgspec
import zmq

from headway.core.events import Event, Retired, besides_decodes
from headway.core.request import FinishReason
from headway.core.step import Step
from headway.drive.ports import Command, ResetPrefixCache, Submit, Withdraw
from headway.drive.record import brief_of
from headway.engine.build import Engine, build_engine, read_stats
from headway.engine.clock import RealClock
from headway.engine.config import EngineConfig
from headway.engine.garbage import rarely_look_for_garbage
from headway.engine.heartbeat import Heartbeat
from headway.wire import (
    FailedMessage,
    ReadyMessage,
    ResetPrefixCacheMessage,
    ShutdownMessage,
    StepTrace,
    SubmitMessage,
    ToEngine,
    TurnMessage,
    WithdrawMessage,
    decode_to_engine,
    encode,
    pack_events,
)

_IDLE_MS = 1000
_LINGER_MS = 2000  # for last words that the API process has not read yet
_send = zmq.backend.Socket.send  # the socket's own asks for routing first: 10 us with cold caches


class SocketInbox:
    """Commands from the API process; `wait` calls `on_idle` once a second."""

    def __init__(self, socket: zmq.Socket[bytes], parent_pid: int) -> None:
        self._socket = socket
        self._parent_pid = parent_pid
        self._open = True
        self._clock = RealClock()
        self.on_idle: Callable[[], None] = lambda: None

    @property
    def is_open(self) -> bool:
        """False once told to shut down or left alone by the API process."""
        return self._open and os.getppid() == self._parent_pid

    def take(self) -> list[Command]:
        commands: list[Command] = []
        while self._socket.poll(0):
            commands += self._receive()
        return commands

    def wait(self, until_ns: int | None = None) -> bool:
        while self.is_open:
            left_ns = None if until_ns is None else until_ns - self._clock.now_ns()
            if left_ns is not None and left_ns <= 0:
                return True
            left_ms = _IDLE_MS if left_ns is None else left_ns // 1_000_000 + 1
            if self._socket.poll(min(_IDLE_MS, left_ms)):
                return True
            self.on_idle()
        return False

    def _receive(self) -> list[Command]:
        message: ToEngine = decode_to_engine(self._socket.recv())
        match message:
            case SubmitMessage(request):
                return [Submit(request)]
            case WithdrawMessage(request_id, index, reason, detail):
                return [Withdraw(request_id, index, reason, detail)]
            case ResetPrefixCacheMessage():
                return [ResetPrefixCache()]
            case ShutdownMessage():
                self._open = False
        return []


class Outbox:
    """A listener that sends every turn, with its logprobs and the state after it, upwards.

    As a run listener it sends along which step it was.
    """

    def __init__(self, socket: zmq.Socket[bytes]) -> None:
        self._socket = socket
        self._engine: Engine | None = None
        self._step: StepTrace | None = None

    def attach(self, engine: Engine) -> None:
        self._engine = engine

    def on_ran(self, step: Step, start_ns: int, end_ns: int) -> None:
        brief = brief_of(step, start_ns, end_ns)
        self._step = StepTrace(*(getattr(brief, name) for name in StepTrace.__struct_fields__))

    def on_events(self, events: SequenceOf[Event], now_ns: int) -> None:
        assert self._engine is not None
        message = TurnMessage(
            now_ns=now_ns,
            events=pack_events(events),
            logprobs=self._engine.executor.logprobs.take(),
            stats=read_stats(self._engine.scheduler),
            step=self._step,
        )
        _send(self._socket, encode(message))
        self._step = None
        if others := besides_decodes(events):
            _report_failures(others)


def _report_failures(events: SequenceOf[Event]) -> None:
    """A failed step is the operator's business too, not only the client's."""
    failed = [e for e in events if type(e) is Retired and e.reason is FinishReason.ERROR]
    for detail in sorted({event.detail for event in failed}):
        print(f"headway engine: {detail}", file=sys.stderr, flush=True)


def run(config: EngineConfig, to_engine: str, from_engine: str, parent_pid: int) -> int:
    """Serve until told to stop or until the parent is gone. Returns the process's exit code."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the API process's to handle
    sockets = zmq.Context()
    receiver = sockets.socket(zmq.PULL)
    sender = sockets.socket(zmq.PUSH)
    receiver.set_hwm(0)
    sender.set_hwm(0)
    sender.setsockopt(zmq.LINGER, _LINGER_MS)
    receiver.connect(to_engine)
    sender.connect(from_engine)
    try:
        inbox = SocketInbox(receiver, parent_pid)
        engine = _start(config, inbox, sender)
        sender.send(encode(ReadyMessage(engine.facts)))
        engine.warm_up()  # while the API process opens its doors
        _serve(engine, inbox, Heartbeat(sockets, from_engine, engine.executor.progress))
        return 0
    except (ValueError, OSError) as error:
        sender.send(encode(FailedMessage(str(error))))
    except MemoryError as error:
        sender.send(encode(FailedMessage(f"there is not enough memory: {error}")))
    except Exception as error:
        traceback.print_exc()
        sender.send(encode(FailedMessage(f"engine stopped: {type(error).__name__}: {error}")))
    finally:
        if os.getppid() == parent_pid:
            sockets.destroy(linger=_LINGER_MS)
        else:  # nobody reads last words, and nobody else tidies up
            sockets.destroy(linger=0)
            _remove_sockets(to_engine, from_engine)
    return 1


def _remove_sockets(*addresses: str) -> None:
    """The files behind the sockets, and the folder that the API process made for them."""
    paths = [Path(a.removeprefix("ipc://")) for a in addresses if a.startswith("ipc://")]
    for path in paths:
        path.unlink(missing_ok=True)
    for folder in {path.parent for path in paths}:
        with contextlib.suppress(OSError):  # it holds something else, too
            folder.rmdir()


def _start(config: EngineConfig, inbox: SocketInbox, sender: zmq.Socket[bytes]) -> Engine:
    outbox = Outbox(sender)
    followers = (outbox,) if config.trace_steps else ()
    engine = build_engine(config, inbox, (outbox,), run_listeners=followers)
    outbox.attach(engine)
    clock = RealClock()

    def on_idle() -> None:
        outbox.on_events((), clock.now_ns())
        if engine.recording is not None:
            engine.recording.flush()

    inbox.on_idle = on_idle
    rarely_look_for_garbage()
    return engine


def _serve(engine: Engine, inbox: SocketInbox, heartbeat: Heartbeat) -> None:
    """Turn the loop until told to stop; whatever happens, the recording is whole to the end."""
    heartbeat.start()
    try:
        while inbox.is_open:
            _turn_or_wait(engine, inbox)
    finally:
        heartbeat.stop()
        if engine.recording is not None:
            engine.recording.close()
        gc.unfreeze()  # so that all is freed before the interpreter ends


def _turn_or_wait(engine: Engine, inbox: SocketInbox) -> None:
    scheduler, progress = engine.scheduler, engine.executor.progress
    progress.turn_began(scheduler.num_steps, RealClock().now_ns())
    if engine.loop.turn():
        return
    progress.rests(scheduler.num_steps)
    inbox.wait(scheduler.next_due_ns())


def main() -> int:
    parser = argparse.ArgumentParser(prog="headway.engine.process")
    parser.add_argument("--to-engine", required=True)
    parser.add_argument("--from-engine", required=True)
    parser.add_argument("--parent-pid", type=int, required=True)
    parser.add_argument("--config", required=True, help="EngineConfig as JSON")
    args = parser.parse_args()
    config = msgspec.convert(json.loads(args.config), EngineConfig)
    return run(config, args.to_engine, args.from_engine, args.parent_pid)


if __name__ == "__main__":
    sys.exit(main())
