"""One life of the engine: its process and the two sockets to it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import subprocess
import tempfile
from collections.abc import Callable

import zmq
import zmq.asyncio

from headway.wire import (
    EngineFacts,
    FailedMessage,
    FromEngine,
    ReadyMessage,
    ShutdownMessage,
    decode_from_engine,
    encode,
)

StartEngine = Callable[[str, str], "subprocess.Popen[bytes]"]
OnMessage = Callable[[FromEngine], None]
_CHILD_POLL_S = 0.1
_POLITE_S = 5.0  # for an engine that was told to stop
_log = logging.getLogger("headway")


class EngineStartError(Exception):
    """The engine did not come up; the message is one sentence for people."""


class EngineLink:
    """`start_engine(to_engine, from_engine)` starts the process, which connects to both addresses.

    It is called at once: the engine loads its weights while the caller does other work. Then
    `wait_ready`, then `follow`, and `close` in any case. Raises EngineStartError, and leaves
    nothing behind, where there is no room for it: no file, no socket, no process more.
    """

    def __init__(self, start_engine: StartEngine) -> None:
        self._is_ready = False
        with contextlib.ExitStack() as undo:
            try:
                self._open(undo)
                self.process = start_engine(*self._addresses)
            except (OSError, zmq.ZMQError) as error:
                raise EngineStartError(f"the engine cannot be started: {error}") from error
            undo.pop_all()

    def _open(self, undo: contextlib.ExitStack) -> None:
        self.directory = tempfile.mkdtemp(prefix="headway-")  # mkdtemp makes it 0700
        undo.callback(shutil.rmtree, self.directory, ignore_errors=True)
        self._addresses = (
            f"ipc://{self.directory}/to-engine",
            f"ipc://{self.directory}/from-engine",
        )
        self._sockets = zmq.asyncio.Context()
        undo.callback(self._sockets.destroy, linger=0)
        self._sender = self._sockets.socket(zmq.PUSH, socket_class=zmq.Socket)  # type: ignore[arg-type]
        self._receiver = self._sockets.socket(zmq.PULL)
        for socket, address in zip((self._sender, self._receiver), self._addresses, strict=True):
            socket.set_hwm(0)
            socket.bind(address)

    async def wait_ready(self) -> EngineFacts:
        """Wait until the engine has loaded its model. Raises EngineStartError."""
        while True:
            message = await self._receive_while_alive()
            if isinstance(message, ReadyMessage):
                self._is_ready = True
                return message.facts
            if isinstance(message, FailedMessage):
                raise EngineStartError(message.message)

    async def follow(self, on_message: OnMessage) -> str:
        """Hand on what the engine says until it is gone; returns how it went, as a sentence."""
        tasks = (
            asyncio.create_task(self._receive_all(on_message)),
            asyncio.create_task(self._gone()),
        )
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def send(self, message: bytes) -> None:
        # Never waits: there is no high-water mark. No peer means that the engine is gone, which
        # `follow` finds out.
        with contextlib.suppress(zmq.ZMQError):
            self._sender.send(message, zmq.NOBLOCK)

    async def close(self) -> None:
        """Stop the engine, politely and then not, and remove the sockets. May be called again."""
        if self._sender.closed:
            return
        if self._is_ready:
            self.send(encode(ShutdownMessage()))
        else:
            self.process.terminate()  # it hears nothing while it loads
        await asyncio.to_thread(_stop, self.process)
        self.remove()

    def remove(self) -> None:
        """The sockets and their directory; nothing that is still in them is sent."""
        self._sender.close(linger=0)
        self._receiver.close(linger=0)
        self._sockets.destroy(linger=0)
        shutil.rmtree(self.directory, ignore_errors=True)

    def kill(self) -> None:
        """At once: for an engine that is not listened to any more."""
        self.process.kill()

    async def _receive_while_alive(self) -> FromEngine:
        while not await self._receiver.poll(_CHILD_POLL_S * 1000):
            if self.process.poll() is not None and not await self._receiver.poll(200):
                raise EngineStartError(_obituary(self.process))
        return decode_from_engine(await self._receiver.recv())

    async def _receive_all(self, on_message: OnMessage) -> str:
        try:
            while True:
                message = decode_from_engine(await self._receiver.recv())
                if isinstance(message, FailedMessage):
                    return message.message
                on_message(message)
        except Exception as error:
            _log.exception("cannot follow the engine any longer")
            return f"it could not be followed any longer: {error!r}"

    async def _gone(self) -> str:
        while self.process.poll() is None:
            await asyncio.sleep(_CHILD_POLL_S)
        await asyncio.sleep(_CHILD_POLL_S)  # its last words may still be in the socket
        return _obituary(self.process)


def _obituary(process: subprocess.Popen[bytes]) -> str:
    code = process.returncode
    how = f"was killed by signal {-code}" if code < 0 else f"exited with code {code}"
    return f"the engine process {how}"


def _stop(process: subprocess.Popen[bytes]) -> None:
    """First it was told so; a second after SIGTERM it is killed."""
    for wait_s, escalate in ((_POLITE_S, process.terminate), (1, process.kill), (5, None)):
        try:
            process.wait(wait_s)
            return
        except subprocess.TimeoutExpired:
            if escalate is not None:
                escalate()
