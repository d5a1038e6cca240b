"""The one loop round the scheduler: commands in, one step, events out."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from typing import assert_never

from headway.core.events import AbortCause, Event
from headway.core.scheduler import Scheduler
from headway.core.step import BadStepResultError, Step, StepResult
from headway.drive.ports import (
    Clock,
    Command,
    Executor,
    Inbox,
    Listener,
    ResetPrefixCache,
    RunListener,
    StepListener,
    Strider,
    Submit,
    Withdraw,
)
from headway.drive.record import record_step, record_stride


class EngineLoop:
    """Engine, simulator and replay are this loop with other ports.

    Listeners hear of everything once and in order. What was queued, refused or withdrawn and whom
    the step admitted, resumed, preempted they hear before the step runs, so that its time is not
    counted as waiting; who advanced and ended, together, when it has. Step listeners and run
    listeners hear of a step between the two. A step that gave nobody a token is told too: it has
    moved the state.

    With a `strider` steps that decide nothing new are taken many at a time. Step listeners hear of
    them one by one, run listeners not at all, listeners only of whom the last of them ended.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        *,
        clock: Clock,
        inbox: Inbox,
        executor: Executor,
        listeners: Iterable[Listener] = (),
        step_listeners: Iterable[StepListener] = (),
        run_listeners: Iterable[RunListener] = (),
        strider: Strider | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._inbox = inbox
        self._executor = executor
        self._listeners = tuple(listeners)
        self._step_listeners = tuple(step_listeners)
        self._run_listeners = tuple(run_listeners)
        self._strider = strider

    def run(self) -> None:
        """Turn until nothing is left and nothing will ever come."""
        while True:
            if self._stride() or self.turn():
                continue
            if not self._inbox.wait(self._scheduler.next_due_ns()):
                break
        # Only what a constraint bars for good can be left: turns move everything else.
        left = self._abort_all("nothing more will arrive, and this was still barred")
        self._tell(left, self._clock.now_ns())

    def turn(self) -> bool:
        """Take commands, run one step, tell what happened. False if nothing did."""
        events: list[Event] = []
        for command in self._inbox.take():
            events += self._obey(command)
        if not self._scheduler.has_unfinished():
            self._tell(events, self._clock.now_ns())
            return bool(events)
        return self._step(events) or bool(events)

    def _stride(self) -> bool:
        """Take the steps that decide nothing new, if the next does not. False if it may."""
        if self._strider is None:
            return False
        start_ns = self._clock.now_ns()
        borders = (self._strider.next_arrival_ns(), self._scheduler.next_due_ns())
        until_ns = min((at_ns for at_ns in borders if at_ns is not None), default=None)
        if until_ns is not None and until_ns <= start_ns:
            return False
        stride = self._scheduler.stride(start_ns)
        if stride is None:
            return False
        result = self._strider.run_stride(stride, until_ns)
        ends_ns = result.ends_ns
        outcome = self._scheduler.take(
            stride, len(ends_ns), result.token_ids, start_ns=start_ns, ends_ns=ends_ns
        )
        if self._step_listeners:
            for record in record_stride(stride, outcome, start_ns=start_ns, ends_ns=ends_ns):
                for listener in self._step_listeners:
                    listener.on_step(record)
        self._tell(outcome, self._clock.now_ns())
        return True

    def _obey(self, command: Command) -> list[Event]:
        match command:
            case Submit(request):
                return self._scheduler.add(request, self._clock.now_ns())
            case Withdraw(request_id, index, reason, detail):
                return self._scheduler.abort(request_id, index, reason, detail)
            case ResetPrefixCache():
                self._scheduler.reset_prefix_cache()
                return []
            case _:
                assert_never(command)

    def _step(self, events: list[Event]) -> bool:
        """Decide, run and complete one step. False if it neither ran nor changed anything."""
        start_ns = self._clock.now_ns()
        step = self._scheduler.schedule(start_ns)
        events += [*step.expired, *step.preempted]
        events += [*step.admitted, *step.resumed, *step.retired]
        self._tell(events, start_ns)
        ran = self._run(step)
        end_ns = self._clock.now_ns()  # recorded, told to the scheduler and to listeners: the same
        outcome, error = self._complete(step, ran, end_ns)
        if self._step_listeners:
            record = record_step(step, outcome, start_ns=start_ns, end_ns=end_ns, error=error)
            for listener in self._step_listeners:
                listener.on_step(record)
        for run_listener in self._run_listeners:
            run_listener.on_ran(step, start_ns, end_ns)
        self._tell(outcome, end_ns, always=bool(step.chunks))
        return bool(step.chunks or step.preempted or outcome)

    def _run(self, step: Step) -> StepResult | Exception:
        try:
            return self._executor.run(step) if step.chunks else StepResult()
        except Exception as error:
            return error

    def _complete(
        self, step: Step, ran: StepResult | Exception, end_ns: int
    ) -> tuple[SequenceOf[Event], str]:
        """Take the outcome; a failure ends the step's sequences, and only them."""
        if isinstance(ran, Exception):
            return self._fail(step, ran)
        try:
            return self._scheduler.complete(step, ran, end_ns), ""
        except BadStepResultError as error:
            return self._fail(step, error)

    def _fail(self, step: Step, error: Exception) -> tuple[list[Event], str]:
        detail = f"the step failed: {type(error).__name__}: {error}"
        return self._scheduler.fail(step, detail), detail

    def _abort_all(self, detail: str) -> list[Event]:
        events: list[Event] = []
        for request_id in self._scheduler.live_request_ids():
            events += self._scheduler.abort(request_id, detail=detail, cause=AbortCause.ENGINE)
        return events

    def _tell(self, events: SequenceOf[Event], now_ns: int, *, always: bool = False) -> None:
        if not events and not always:
            return
        for listener in self._listeners:
            listener.on_events(events, now_ns)
