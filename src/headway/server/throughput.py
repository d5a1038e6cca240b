"""What was done lately, per second in which there was work: what a Retry-After is made of."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

_NS = 1_000_000_000
_WINDOW_NS = 30 * _NS
MAX_RETRY_AFTER_S = 60


@dataclass(slots=True)
class _Second:
    began_ns: int
    busy_ns: int = 0
    num_ended: int = 0
    num_prompt_tokens: int = 0


class Throughput:
    """Of the last thirty seconds; idle time does not count."""

    def __init__(self) -> None:
        self._seconds: deque[_Second] = deque()
        self._last_ns: int | None = None
        self.is_busy = False  # from now on

    def pass_time(self, now_ns: int) -> None:
        """What is noted next happened at that time."""
        elapsed_ns = 0 if self._last_ns is None else max(0, now_ns - self._last_ns)
        self._last_ns = now_ns
        if not self._seconds or now_ns - self._seconds[-1].began_ns >= _NS:
            self._seconds.append(_Second(now_ns))
        if self.is_busy:
            self._seconds[-1].busy_ns += min(elapsed_ns, _WINDOW_NS)
        while now_ns - self._seconds[0].began_ns > _WINDOW_NS:
            self._seconds.popleft()

    def ended(self) -> None:
        self._seconds[-1].num_ended += 1

    def computed(self, num_prompt_tokens: int) -> None:
        self._seconds[-1].num_prompt_tokens += num_prompt_tokens

    def idle_ns(self, now_ns: int) -> int:
        """For how long nothing has been noted."""
        return 0 if self._last_ns is None else now_ns - self._last_ns

    @property
    def num_seconds(self) -> int:
        return len(self._seconds)

    def busy_s(self) -> float:
        return sum(second.busy_ns for second in self._seconds) / _NS

    def num_ended(self) -> int:
        return sum(second.num_ended for second in self._seconds)

    def num_prompt_tokens(self) -> int:
        return sum(second.num_prompt_tokens for second in self._seconds)

    def until_done(self, num_too_many: int, num_done: int, what: str) -> tuple[int, str]:
        """Whole seconds, from 1 to 60, until so many are done, and what that is based on.

        Where nothing has been done yet: at least as long as it took so far.
        """
        busy_s = self.busy_s()
        seconds = num_too_many * busy_s / max(1, num_done)
        done = f"{num_done} {what}" if num_done else f"no {what}"
        basis = f"{done} done in the last {busy_s:.0f} s"
        return min(MAX_RETRY_AFTER_S, max(1, math.ceil(seconds))), basis


FORGOTTEN_AFTER_NS = _WINDOW_NS  # then nothing that was noted counts any more
