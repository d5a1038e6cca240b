"""The four things that differ between engine, simulator and replay."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Protocol

from headway.core.events import Event
from headway.core.request import FinishReason, Request
from headway.core.step import Step, StepResult
from headway.drive.record import StepRecord


@dataclass(frozen=True, slots=True)
class Submit:
    request: Request


@dataclass(frozen=True, slots=True)
class Withdraw:
    """End a request, or one of its sequences by `index`, from outside: client gone, stop string."""

    request_id: str
    index: int | None = None
    reason: FinishReason = FinishReason.ABORT
    detail: str = ""


Command = Submit | Withdraw


class Clock(Protocol):
    def now_ns(self) -> int: ...


class Inbox(Protocol):
    def take(self) -> list[Command]:
        """Commands that have arrived, in order; never waits."""
        ...

    def wait(self) -> bool:
        """Wait for something to arrive while the engine is idle. False: nothing will ever come."""
        ...


class Executor(Protocol):
    def run(self, step: Step) -> StepResult:
        """One forward pass. Steps run strictly in order. The simulated one moves the clock."""
        ...


class Listener(Protocol):
    def on_events(self, events: SequenceOf[Event], now_ns: int) -> None:
        """What happened in this turn of the loop, in order, told after the fact."""
        ...


class StepListener(Protocol):
    def on_step(self, record: StepRecord) -> None:
        """One step as it was decided and run; told before the events of its turn."""
        ...
