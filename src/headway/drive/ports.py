"""The four things that differ between engine, simulator and replay."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import Protocol

from headway.core.events import Event
from headway.core.request import FinishReason, Request
from headway.core.step import Step, StepResult
from headway.core.stride import Stride
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


@dataclass(frozen=True, slots=True)
class ResetPrefixCache:
    """Forget which blocks hold what; running sequences keep theirs."""


Command = Submit | Withdraw | ResetPrefixCache


class Clock(Protocol):
    def now_ns(self) -> int: ...


class Inbox(Protocol):
    def take(self) -> list[Command]:
        """Commands that have arrived, in order; never waits."""
        ...

    def wait(self, until_ns: int | None = None) -> bool:
        """Wait, while there is nothing to do, for something to arrive or for `until_ns` to pass.

        `until_ns` is on the loop's clock, None for ever. False: neither will ever happen.
        """
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
        """One step as it was decided and run; told before the events of its outcome."""
        ...


class RunListener(Protocol):
    def on_ran(self, step: Step, start_ns: int, end_ns: int) -> None:
        """One step as it was decided, and when it ran; told before the events of its outcome.

        For those whom a record of every sequence in every step would cost too much.
        """
        ...


class CommandListener(Protocol):
    def on_commands(self, commands: SequenceOf[Command], now_ns: int) -> None:
        """What came in, before anything is done about it."""
        ...


class Follower(CommandListener, Listener, RunListener, Protocol):
    """Hears of all that comes in and all that comes of it."""


@dataclass(frozen=True, slots=True)
class StrideResult:
    """The steps of a stride that were run: when each ended, and their tokens for each sequence."""

    ends_ns: SequenceOf[int] = ()
    token_ids: SequenceOf[SequenceOf[int]] = ()


class Strider(Protocol):
    def next_arrival_ns(self) -> int | None:
        """When a command comes next, as things are; None for never."""
        ...

    def run_stride(self, stride: Stride, until_ns: int | None) -> StrideResult:
        """Run as many steps of it as begin before `until_ns`, one at least.

        Moves the clock. Only the last of the steps may yield a token that ends its sequence.
        """
        ...
