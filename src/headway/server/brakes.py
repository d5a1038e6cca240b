"""What may come in: limits on what is in flight, and when it is worth coming again."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from headway.core.events import Aborted, Admitted, Advanced, Event, Rejected, Retired
from headway.core.request import Request
from headway.server.ledger import Ledger
from headway.wire import EngineStats

_NS = 1_000_000_000
_WINDOW_NS = 30 * _NS
MAX_RETRY_AFTER_S = 60


class QueueFullError(Exception):
    """The server takes no more for now; the message says why and what the wait is based on."""

    def __init__(self, message: str, retry_after_s: int, cause: str = "queue_reqs") -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s
        self.cause = cause  # queue_reqs or queue_tokens


class NeverFitsError(Exception):
    """More at once than the server ever takes: no use in trying again."""

    cause = "never_fits"


@dataclass(slots=True)
class _Second:
    began_ns: int
    busy_ns: int = 0
    num_ended: int = 0
    num_prompt_tokens: int = 0


class DrainRate:
    """A fold: what was done in the last thirty seconds, per second in which there was work."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._seconds: deque[_Second] = deque()
        self._last_ns: int | None = None
        self._was_busy = False
        self._to_compute: dict[int, int] = {}  # by sequence id: prompt tokens without the cached
        self._prompts: dict[str, int] = {}

    def on_submitted(self, request: Request, now_ns: int) -> None:
        self._pass_time(now_ns)
        self._was_busy = True
        self._prompts[request.request_id] = request.num_prompt_tokens

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        self._pass_time(now_ns)
        for event in events:
            self._fold(event, self._seconds[-1])
        self._was_busy = self._ledger.num_sequences > 0

    def on_stats(self, stats: EngineStats) -> None:
        """Nothing is learned from these."""

    def busy_s(self) -> float:
        return sum(second.busy_ns for second in self._seconds) / _NS

    def num_ended(self) -> int:
        return sum(second.num_ended for second in self._seconds)

    def num_prompt_tokens(self) -> int:
        return sum(second.num_prompt_tokens for second in self._seconds)

    def _fold(self, event: Event, second: _Second) -> None:
        match event:
            case Admitted(sequence_id, request_id, num_cached_tokens):
                num_tokens = self._prompts.get(request_id, 0) - num_cached_tokens
                self._to_compute[sequence_id] = num_tokens
            case Advanced(sequence_id):
                second.num_prompt_tokens += self._to_compute.pop(sequence_id, 0)
            case Retired(sequence_id) | Aborted(sequence_id):
                second.num_ended += 1
                self._to_compute.pop(sequence_id, None)
                self._forget(event.request_id)
            case Rejected(request_id):
                self._forget(request_id)

    def _forget(self, request_id: str) -> None:
        if request_id not in self._ledger:
            self._prompts.pop(request_id, None)

    def _pass_time(self, now_ns: int) -> None:
        elapsed_ns = 0 if self._last_ns is None else max(0, now_ns - self._last_ns)
        self._last_ns = now_ns
        if not self._seconds or now_ns - self._seconds[-1].began_ns >= _NS:
            self._seconds.append(_Second(now_ns))
        if self._was_busy:
            self._seconds[-1].busy_ns += min(elapsed_ns, _WINDOW_NS)
        while now_ns - self._seconds[0].began_ns > _WINDOW_NS:
            self._seconds.popleft()


class Brakes:
    """Refuses what would be too much; None is no limit.

    `max_num_reqs` counts sequences in flight, waiting or running, so n choices are n.
    `max_num_tokens` counts prompt tokens that are still to compute: what the engine said after its
    last step, and the prompts it has not spoken of yet.
    """

    def __init__(
        self, ledger: Ledger, max_num_reqs: int | None = None, max_num_tokens: int | None = None
    ) -> None:
        self._ledger = ledger
        self._max_num_reqs = max_num_reqs
        self._max_num_tokens = max_num_tokens
        self._stats: EngineStats | None = None
        self.rate = DrainRate(ledger)

    def limit(self, max_num_reqs: int | None, max_num_tokens: int | None) -> None:
        self._max_num_reqs = max_num_reqs
        self._max_num_tokens = max_num_tokens

    def on_submitted(self, request: Request, now_ns: int) -> None:
        self.rate.on_submitted(request, now_ns)

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        self.rate.on_events(events, now_ns)

    def on_stats(self, stats: EngineStats) -> None:
        self._stats = stats

    @property
    def num_backlog_tokens(self) -> int:
        told = 0 if self._stats is None else self._stats.num_backlog_tokens
        return told + self._ledger.num_unqueued_tokens

    def check(self, num_sequences: int) -> None:
        """Raises QueueFullError when that many more sequences are too many, all or none, and
        NeverFitsError when they always will be.
        """
        self._check_sequences(num_sequences)
        self._check_tokens()

    def retry_after_s(self) -> int:
        """Whole seconds, from 1 to 60, until about half of what is in flight should be done."""
        half = math.ceil(self._ledger.num_sequences / 2)
        return self._wait(half, self.rate.num_ended())[0]

    def _check_sequences(self, num_sequences: int) -> None:
        limit, now = self._max_num_reqs, self._ledger.num_sequences
        if limit is None or now + num_sequences <= limit:
            return
        if num_sequences > limit:
            raise NeverFitsError(
                f"this asks for {num_sequences} sequences (prompts times n) and the server takes "
                f"{limit} at once: send fewer prompts or a smaller n"
            )
        why = f"{now} of {limit} sequences are in flight and this asks for {num_sequences} more"
        seconds, basis = self._wait(now + num_sequences - limit, self.rate.num_ended())
        raise QueueFullError(
            f"the server is full: {why}; try again in {seconds} s ({basis('sequences')})", seconds
        )

    def _check_tokens(self) -> None:
        limit, now = self._max_num_tokens, self.num_backlog_tokens
        if limit is None or now < limit:
            return
        seconds, basis = self._wait(now - limit + 1, self.rate.num_prompt_tokens())
        raise QueueFullError(
            f"the server is full: {now} prompt tokens wait to be computed and the limit is "
            f"{limit}; try again in {seconds} s ({basis('prompt tokens')})",
            seconds,
            "queue_tokens",
        )

    def _wait(self, num_too_many: int, num_done: int) -> tuple[int, _Basis]:
        """How long until so many are done. Nothing done yet: at least as long as it took so far."""
        busy_s = self.rate.busy_s()
        seconds = num_too_many * busy_s / max(1, num_done)
        return min(MAX_RETRY_AFTER_S, max(1, math.ceil(seconds))), _Basis(num_done, busy_s)


@dataclass(frozen=True, slots=True)
class _Basis:
    num_done: int
    busy_s: float

    def __call__(self, what: str) -> str:
        if not self.num_done:
            return f"no {what} done in the last {self.busy_s:.0f} s"
        return f"{self.num_done} {what} done in the last {self.busy_s:.0f} s"
