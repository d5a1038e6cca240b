"""A measurement from beginning to end: which model, a warm-up, then one load after another."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from headway.bench.connections import dial
from headway.bench.figures import Figures, Objectives, figures_of
from headway.bench.load import Load
from headway.bench.outcome import Outcome
from headway.bench.requests import Form
from headway.bench.tally import Rules, Tally
from headway.simulator.workload.base import ClientRequest, Traffic, Workload

_TICK_S = 0.5
Tick = Callable[[Tally], None]


@dataclass(frozen=True, slots=True)
class Measured:
    """A load's figures, and what became of each of its requests."""

    figures: Figures
    outcomes: list[Outcome]
    is_interrupted: bool = False
    why_cut: str = ""


@dataclass(slots=True, kw_only=True)
class Session:
    """Loads on one server. Texts of two loads differ, so that none is found in a cache of the
    last one's; `on_tick` is told twice a second how far it is.
    """

    form: Form
    rules: Rules
    objectives: Objectives | None = None
    on_tick: Tick = lambda tally: None
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _num_loads: int = 0

    def warm_up(self, workload: Workload, count: int) -> float:
        """The first requests of a workload, one by one; seconds that the last one took.

        Raises ValueError, with what the server said, if one is not served.
        """
        taken_s = 0.0
        for number in range(count):
            measured = self._measure(_One(workload, number), None)
            (outcome,) = measured.outcomes
            if measured.is_interrupted:
                raise KeyboardInterrupt
            if not outcome.is_served:
                said = f": {outcome.message}" if outcome.message else ""
                raise ValueError(
                    f"{self.form.target.url}{self.form.endpoint} does not serve the first "
                    f"request: {outcome.label}{said}"
                )
            taken_s = outcome.e2e_ns() / 1e9
        return taken_s

    def measure(self, workload: Workload, num_due: int | None = None) -> Measured:
        """One load. `num_due`: how many requests it has, if that is known."""
        return self._measure(workload, num_due)

    def _measure(self, workload: Workload, num_due: int | None) -> Measured:
        form = replace(self.form, salt=self.form.salt + self._num_loads)
        self._num_loads += 1
        return asyncio.run(self._run(workload.traffic(), form, num_due))

    async def _run(self, traffic: Traffic, form: Form, num_due: int | None) -> Measured:
        load = Load(traffic, form, dial(form.target), self.rules, numbers=self._numbers)
        ticking = asyncio.create_task(self._tick(load.tally))
        with _interrupts(load) as was_interrupted:
            try:
                tally = await load.run()
            finally:
                ticking.cancel()
        figures = figures_of(tally, load.watch, self.objectives, num_due)
        return Measured(figures, tally.outcomes, was_interrupted(), tally.why_cut)

    async def _tick(self, tally: Tally) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self.on_tick(tally)


class _One:
    """The n-th request of a workload alone, at once."""

    def __init__(self, workload: Workload, number: int) -> None:
        self._workload = workload
        self._number = number

    def traffic(self) -> _One:
        return self

    def arrivals(self) -> Iterator[ClientRequest]:
        clients = itertools.cycle(self._workload.traffic().arrivals())
        client = next(itertools.islice(clients, self._number, None))
        yield replace(client, arrival_ns=0, leaves_after_ns=None)

    def follow_up(self, ended: ClientRequest, now_ns: int) -> tuple[()]:
        return ()


@contextlib.contextmanager
def _interrupts(load: Load) -> Iterator[Callable[[], bool]]:
    """Ctrl-C ends the load, and what was measured is told; a second one ends the program."""
    loop, interrupts = asyncio.get_running_loop(), []

    def interrupt() -> None:
        interrupts.append(True)
        loop.remove_signal_handler(signal.SIGINT)
        load.stop("interrupted")

    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        yield lambda: bool(interrupts)
    finally:
        loop.remove_signal_handler(signal.SIGINT)
