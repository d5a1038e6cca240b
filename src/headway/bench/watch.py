"""Was it the server, or the client? What the client's own process did during a load."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from headway.bench.outcome import Outcome
from headway.simulator.result import Spread

_INTERVAL_S = 0.02
MOST_CPU_SHARE = 0.8  # of one core, which is all that one thread has
LEAST_TOLD_S = 0.002  # below this nothing is said to disturb
MOST_SHARE = 0.1  # of the figure that it is part of
Percentiles = Callable[[float], float]  # seconds


@dataclass(slots=True)
class Watch:
    """Looks at the event loop fifty times a second, and at what the process took of a core."""

    lags_s: list[float] = field(default_factory=list)
    cpu_s: float = 0.0
    wall_s: float = 0.0

    async def look(self, cpu_seconds: Callable[[], float] = time.process_time) -> None:
        """Until cancelled."""
        loop = asyncio.get_running_loop()
        began_s, cpu_began_s = loop.time(), cpu_seconds()
        try:
            while True:
                due_s = loop.time() + _INTERVAL_S
                await asyncio.sleep(_INTERVAL_S)
                self.lags_s.append(max(0.0, loop.time() - due_s))
        finally:
            self.wall_s = loop.time() - began_s
            self.cpu_s = cpu_seconds() - cpu_began_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFigures:
    """`lateness_s`: from when a request was due, and a place free, until the client got to it.

    `lag_s`: by how much the event loop was late; what it reads then has waited as long.
    """

    cpu_share: float
    lateness_s: Spread
    lag_s: Spread

    @staticmethod
    def of(watch: Watch, outcomes: Iterable[Outcome]) -> ClientFigures:
        late = [(one.started_ns - one.cleared_ns) / 1e9 for one in outcomes if one.started_ns]
        return ClientFigures(
            cpu_share=watch.cpu_s / watch.wall_s if watch.wall_s > 0 else 0.0,
            lateness_s=Spread.of(np.array(late)),
            lag_s=Spread.of(np.array(watch.lags_s)),
        )

    def complaints(self, ttft_s: Percentiles, itl_s: Percentiles) -> list[str]:
        """Why the figures are the client's more than the server's; none if they are not.

        Of each the median and the 99th percentile: what delays one read in 100 moves no median.
        """
        found = []
        if self.cpu_share > MOST_CPU_SHARE:
            found.append(f"the client was busy for {self.cpu_share:.0%} of the time")
        for what, delays_s, name, figures_s in (
            ("requests left", self.lateness_s, "TTFT", ttft_s),
            ("reads came", self.lag_s, "ITL", itl_s),
        ):
            for percent, delay_s in ((50, delays_s.p50), (99, delays_s.p99)):
                figure_s = figures_s(percent)
                if delay_s > LEAST_TOLD_S and delay_s > MOST_SHARE * figure_s:
                    found.append(
                        f"at the percentile {percent} {what} {delay_s * 1e3:.3g} ms late, and "
                        f"{name} is {figure_s * 1e3:.3g} ms"
                    )
        return found
