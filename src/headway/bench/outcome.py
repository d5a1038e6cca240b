"""What became of one request. Times in nanoseconds of the load's clock."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]


class Ending(Enum):
    """How it ended; each request ends in exactly one way."""

    SERVED = "served"
    REFUSED = "refused"  # with a status other than 2xx
    NO_CONNECTION = "no connection"
    BROKEN = "broken off"
    GARBAGE = "not an event stream"
    ERROR = "error in the stream"
    STALLED = "stalled"
    LEFT = "left, as the workload says"
    CUT = "cut off by the end of the run"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`intended_ns`: when it was to be sent, from which its latencies count.

    `cleared_ns`: when it was its turn, later than intended where a place had to become free;
    `started_ns`: when the client got to it; `sent_ns`: when its bytes went out, 0 for never.
    `times_ns`: of each event that brought text. `num_output_tokens` as the server counts them or,
    where it does not tell, as many as there were such events.
    """

    name: str
    intended_ns: int
    cleared_ns: int
    started_ns: int
    sent_ns: int
    ended_ns: int
    ending: Ending
    status: int = 0
    message: str = ""
    times_ns: array[int] = field(default_factory=lambda: array("q"))
    num_prompt_tokens: int
    num_output_tokens: int
    asked_output_tokens: int
    is_usage_known: bool = False

    @property
    def label(self) -> str:
        """What it is counted as."""
        return f"{self.ending.value} with {self.status}" if self._is_refused else self.ending.value

    @property
    def _is_refused(self) -> bool:
        return self.ending is Ending.REFUSED

    @property
    def is_served(self) -> bool:
        return self.ending is Ending.SERVED

    def ttft_ns(self) -> int:
        return self.times_ns[0] - self.intended_ns

    def e2e_ns(self) -> int:
        return self.ended_ns - self.intended_ns

    def tpot_ns(self) -> float | None:
        """Mean time for each output token after the first; None where there is but one."""
        later = self.num_output_tokens - 1
        return (self.times_ns[-1] - self.times_ns[0]) / later if later > 0 else None

    def gaps_ns(self) -> Times:
        times = np.frombuffer(self.times_ns, np.int64)
        return times[1:] - times[:-1]
