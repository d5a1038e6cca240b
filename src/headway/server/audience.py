"""Who follows what the engine does: told soon, but never in front of the clients who wait."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headway.core.events import Event
from headway.core.request import Request
from headway.wire import EngineStats, StepTrace

_log = logging.getLogger("headway")


class Fold(Protocol):
    """Something that is told what is asked of the engine and what happens in it."""

    def on_submitted(self, request: Request, now_ns: int) -> None: ...
    def on_events(self, events: Sequence[Event], now_ns: int) -> None: ...
    def on_stats(self, stats: EngineStats) -> None: ...


class StepFold(Protocol):
    """Something that is told of the step that gave events, before them."""

    def on_step(self, step: StepTrace) -> None: ...


@dataclass(frozen=True, slots=True)
class _Turn:
    events: Sequence[Event]
    now_ns: int
    stats: EngineStats | None
    step: StepTrace | None


class Audience:
    """Folds hear everything once and in order, a little later than the streams that it concerns.

    Statistics of a turn of 64 sequences take 2 ms: told first, every client would wait for them.
    """

    def __init__(self) -> None:
        self._folds: list[Fold] = []
        self._step_folds: list[StepFold] = []
        self._untold: list[_Turn] = []

    def add(self, fold: Fold) -> None:
        self._folds.append(fold)

    def add_step_fold(self, fold: StepFold) -> None:
        self._step_folds.append(fold)

    def submitted(self, request: Request, now_ns: int) -> None:
        """At once, and after everything before it: the request's id may have been used before."""
        self.catch_up()
        for fold in self._folds:
            _hear(fold.on_submitted, request, now_ns)

    def tell(
        self,
        events: Sequence[Event],
        now_ns: int,
        stats: EngineStats | None,
        step: StepTrace | None = None,
    ) -> None:
        """Soon: after the tasks that already are to run."""
        if not self._untold:
            asyncio.get_running_loop().call_soon(self.catch_up)
        self._untold.append(_Turn(events, now_ns, stats, step))

    def catch_up(self) -> None:
        """Tell now what has not been told. For who is about to ask a fold."""
        untold, self._untold = self._untold, []
        for turn in untold:
            self._tell(turn)

    def _tell(self, turn: _Turn) -> None:
        if turn.step is not None:
            for step_fold in self._step_folds:
                _hear(step_fold.on_step, turn.step)
        for fold in self._folds:
            _hear(fold.on_events, turn.events, turn.now_ns)
        if turn.stats is not None:
            for fold in self._folds:
                _hear(fold.on_stats, turn.stats)


def _hear(hear: Callable[..., None], *what: object) -> None:
    try:
        hear(*what)
    except Exception:  # who watches must not stop what is watched
        _log.exception("%s failed on what it was told", getattr(hear, "__qualname__", hear))
