"""A sign of life every second, also while a step runs."""

from __future__ import annotations

import threading
from typing import NamedTuple

import zmq

from headway.engine.clock import RealClock
from headway.wire import AliveMessage, encode

_PERIOD_S = 1.0


class _Moment(NamedTuple):
    step_index: int  # of the step in progress, or of the next one
    began_ns: int | None
    num_tokens: int


class Progress:
    """What the engine's one thread is at, for another thread to read.

    Each change replaces one tuple, so that a reader never sees half of it.
    """

    def __init__(self) -> None:
        self.moment = _Moment(0, None, 0)

    def turn_began(self, step_index: int, now_ns: int) -> None:
        """Commands are taken and a step is decided: it may hang there, too."""
        self.moment = _Moment(step_index, now_ns, 0)

    def step_runs(self, step_index: int, num_tokens: int) -> None:
        self.moment = _Moment(step_index, self.moment.began_ns, num_tokens)

    def rests(self, step_index: int) -> None:
        """Nothing is to be done until something arrives."""
        self.moment = _Moment(step_index, None, 0)


class Heartbeat:
    """A thread with a socket of its own; it stops beating when the whole process is stopped."""

    def __init__(self, sockets: zmq.Context[zmq.Socket[bytes]], to: str, progress: Progress):
        self._sockets = sockets
        self._to = to
        self._progress = progress
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns when the socket is closed, so that the sockets' context can be ended."""
        self._ends.set()
        self._thread.join()

    def _run(self) -> None:
        clock = RealClock()
        with self._sockets.socket(zmq.PUSH) as socket:
            socket.set_hwm(0)
            socket.setsockopt(zmq.LINGER, 0)
            socket.connect(self._to)
            while not self._ends.wait(_PERIOD_S):
                moment = self._progress.moment
                message = AliveMessage(
                    now_ns=clock.now_ns(),
                    step_index=moment.step_index,
                    step_began_ns=moment.began_ns,
                    step_num_tokens=moment.num_tokens,
                )
                socket.send(encode(message))
