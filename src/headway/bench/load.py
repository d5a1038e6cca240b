"""An open loop: each request goes out at its time, whatever became of those before."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import time
from collections import deque
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field

from headway.bench.answer import Answer
from headway.bench.connections import ClockNs, Connections, Dial
from headway.bench.outcome import Ending, Outcome
from headway.bench.requests import Form
from headway.bench.tally import SECOND, Rules, Tally
from headway.bench.watch import Watch
from headway.simulator.workload.base import ClientRequest, Traffic

# What is put into bytes before the first request is due: about a second's work.
_READY_BYTES, _READY_REQUESTS = 1 << 26, 20_000
_MOST_IN_VAIN = 100  # requests in a row that find no server, and it is gone
_LOOK_S = 0.25


@dataclass(slots=True, eq=False)
class _Ask:
    """A request that has not ended."""

    client: ClientRequest
    raw: bytes
    answer: Answer = field(default_factory=Answer)
    cleared_ns: int = 0
    started_ns: int = 0
    sent_ns: int = 0
    task: asyncio.Task[None] | None = None


class Load:
    """One run of a workload against a server; `run` may be awaited once."""

    def __init__(
        self,
        traffic: Traffic,
        form: Form,
        dial: Dial,
        rules: Rules,
        *,
        clock_ns: ClockNs = time.monotonic_ns,
        numbers: Iterator[int] | None = None,
    ) -> None:
        self.tally = Tally()
        self.watch = Watch()
        self._traffic = traffic
        self._form = form
        self._rules = rules
        self._clock_ns = clock_ns
        self._connections = Connections(dial, self._now_ns)
        self._numbers = numbers or itertools.count()
        self._origin_ns = 0
        self._open: dict[_Ask, None] = {}
        self._queue: deque[_Ask] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._num_in_vain = 0
        self._fault: BaseException | None = None
        self._stop = asyncio.Event()

    def stop(self, why: str) -> None:
        """Nothing more is sent, and what is open is cut off."""
        self.tally.is_cut, self.tally.why_cut = True, self.tally.why_cut or why
        self._stop.set()

    async def run(self) -> Tally:
        """Raises ValueError for a workload that is not one."""
        arrivals = self._traffic.arrivals()
        ready = self._ready(arrivals)
        with _rare_garbage():
            looking = [asyncio.create_task(self.watch.look()), asyncio.create_task(self._look())]
            stopping = asyncio.create_task(self._stop.wait())
            sending = asyncio.create_task(self._send_all(ready, arrivals))
            try:
                await asyncio.wait({sending, stopping}, return_when=asyncio.FIRST_COMPLETED)
                if sending.done():
                    sending.result()
                    await self._drain(stopping)
            finally:
                await self._end(sending, stopping, *looking)
        if self._fault is not None:
            raise self._fault
        return self.tally

    # ---- Sending ----

    def _ready(self, arrivals: Iterator[ClientRequest]) -> deque[_Ask]:
        """As many as are put into bytes beforehand."""
        ready, num_bytes = deque[_Ask](), 0
        for client in arrivals:
            ready.append(self._ask(client))
            num_bytes += len(ready[-1].raw)
            if num_bytes > _READY_BYTES or len(ready) >= _READY_REQUESTS:
                break
        return ready

    async def _send_all(self, ready: deque[_Ask], arrivals: Iterator[ClientRequest]) -> None:
        self._origin_ns = self._clock_ns()
        while ready:
            ask = ready.popleft()
            await self._until(ask.client.arrival_ns)
            self._start(ask)
            if (client := next(arrivals, None)) is not None:
                ready.append(self._ask(client))

    def _ask(self, client: ClientRequest) -> _Ask:
        return _Ask(client, self._form.request(client, next(self._numbers)))

    async def _until(self, at_ns: int) -> None:
        while (left_ns := at_ns - self._now_ns()) > 0:
            await asyncio.sleep(left_ns / SECOND)

    def _start(self, ask: _Ask) -> None:
        self.tally.last_arrival_ns = max(self.tally.last_arrival_ns, ask.client.arrival_ns)
        ask.cleared_ns = ask.client.arrival_ns
        limit = self._rules.max_concurrency
        if limit is not None and len(self._open) >= limit:
            self._queue.append(ask)
            return
        self._go(ask)

    def _go(self, ask: _Ask) -> None:
        self._open[ask] = None
        self.tally.num_open = len(self._open)
        ask.task = self._spawn(self._one(ask))

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._reap)
        return task

    def _reap(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._fault = self._fault or fault
            self._stop.set()

    # ---- One request ----

    async def _one(self, ask: _Ask) -> None:
        ask.started_ns = ask.answer.heard_ns = self._now_ns()
        patience = asyncio.timeout(self._patience_s(ask))
        try:
            async with patience:
                await self._exchange(ask)
        except OSError as error:  # among them TimeoutError
            if patience.expired():
                ask.answer.finish(Ending.LEFT)
            else:
                ask.answer.finish(Ending.NO_CONNECTION, _reason(error))
        except asyncio.CancelledError:
            ask.answer.finish(Ending.CUT)
        self._close(ask)

    def _patience_s(self, ask: _Ask) -> float | None:
        if ask.client.leaves_after_ns is None:
            return None
        left_ns = ask.client.arrival_ns + ask.client.leaves_after_ns - self._now_ns()
        return max(0, left_ns) / SECOND

    async def _exchange(self, ask: _Ask) -> None:
        """A kept connection that the server has just closed is none of the request's business."""
        connection = await self._connections.get()
        self._sent(ask)
        await connection.ask(ask.raw, ask.answer)
        is_unanswered = ask.answer.ending is Ending.BROKEN and not ask.answer.reader.status
        if is_unanswered and connection.num_asked > 1:
            ask.answer = Answer()
            connection = await self._connections.get_new()
            self._sent(ask)
            await connection.ask(ask.raw, ask.answer)

    def _sent(self, ask: _Ask) -> None:
        ask.sent_ns = ask.answer.heard_ns = self._now_ns()
        self.tally.num_sent += 1

    def _close(self, ask: _Ask) -> None:
        """It has ended: it is told, and what follows it begins."""
        del self._open[ask]
        outcome = self._outcome(ask)
        self.tally.outcomes.append(outcome)
        self.tally.num_events += len(outcome.times_ns)
        self.tally.num_open = len(self._open)
        self.tally.ended_ns = outcome.ended_ns
        self._look_for_server(outcome)
        if self._stop.is_set():
            return
        for client in self._traffic.follow_up(ask.client, outcome.ended_ns):
            self._spawn(self._later(self._ask(client)))
        if self._queue:
            following = self._queue.popleft()
            following.cleared_ns = outcome.ended_ns
            self._go(following)

    async def _later(self, ask: _Ask) -> None:
        await self._until(ask.client.arrival_ns)
        self._start(ask)

    def _look_for_server(self, outcome: Outcome) -> None:
        is_in_vain = outcome.ending is Ending.NO_CONNECTION
        self._num_in_vain = self._num_in_vain + 1 if is_in_vain else 0
        if self._num_in_vain >= _MOST_IN_VAIN:
            self.stop(f"{_MOST_IN_VAIN} requests in a row found no server: {outcome.message}")

    def _outcome(self, ask: _Ask) -> Outcome:
        answer, usage = ask.answer, ask.answer.usage
        assert answer.ending is not None
        said = usage.completion_tokens if usage else None
        prompt_said = usage.prompt_tokens if usage else None
        served_ns = answer.heard_ns if answer.ending is Ending.SERVED else self._now_ns()
        return Outcome(
            name=ask.client.request_id,
            intended_ns=ask.client.arrival_ns,
            cleared_ns=ask.cleared_ns,
            started_ns=ask.started_ns,
            sent_ns=ask.sent_ns,
            ended_ns=served_ns,
            ending=answer.ending,
            status=answer.reader.status,
            message=answer.message,
            times_ns=answer.times_ns,
            num_prompt_tokens=ask.client.num_prompt_tokens if prompt_said is None else prompt_said,
            num_output_tokens=len(answer.times_ns) if said is None else said,
            asked_output_tokens=ask.client.output.num_tokens,
            is_usage_known=said is not None,
        )

    # ---- The end ----

    async def _look(self) -> None:
        """Gives up what stalls. Runs until it is cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            silent_ns = self._now_ns() - int(self._rules.stall_s * SECOND)
            for ask in [ask for ask in self._open if ask.answer.heard_ns < silent_ns]:
                ask.answer.finish(Ending.STALLED, f"no event for {self._rules.stall_s:g} s")
                assert ask.task is not None
                ask.task.cancel()

    async def _drain(self, stopping: asyncio.Task[bool]) -> None:
        loop = asyncio.get_running_loop()
        limit_s = self._rules.drain_s
        until_s = None if limit_s is None else loop.time() + limit_s
        while self._tasks and not self._stop.is_set():
            left_s = None if until_s is None else until_s - loop.time()
            if left_s is not None and left_s <= 0:
                self.stop(f"what had not ended {limit_s:g} s after the last arrival was cut off")
                return
            await asyncio.wait(
                {*self._tasks, stopping}, timeout=left_s, return_when=asyncio.FIRST_COMPLETED
            )

    async def _end(self, *tasks: asyncio.Task[object]) -> None:
        self._stop.set()
        cut = [*tasks, *self._tasks]
        for task in cut:
            task.cancel()
        await asyncio.gather(*cut, return_exceptions=True)
        for ask in self._queue:  # never sent, and yet they were to be
            ask.answer.finish(Ending.CUT, "there was no place for it before the end")
            self.tally.outcomes.append(self._outcome(ask))
        self._connections.close()
        if self.tally.is_cut:
            self.tally.ended_ns = max(self.tally.ended_ns, self._now_ns())

    def _now_ns(self) -> int:
        return self._clock_ns() - self._origin_ns


@contextlib.contextmanager
def _rare_garbage() -> Iterator[None]:
    """What is there already is not looked at again, and what comes rarely: both take time."""
    before = gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


def _reason(error: OSError) -> str:
    return error.strerror or str(error) or type(error).__name__
