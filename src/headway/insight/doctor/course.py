"""Readings in order: what held over all of them, and what moved."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headway.insight.doctor.combine import mean, over_time
from headway.insight.doctor.readings import Observation, Reading

_LEAST_WAITING_SHARE = 0.5  # of the moments, from which on a queue is more than a blip
_LEAST_PINNED_SHARE = 0.7  # at its top so much of the time is what has run into a ceiling


class Course:
    """What rules ask of an observation.

    `state`: its mean over all moments. `watched`: the counts of all intervals in which no engine
    started again; None where there is none. `life`: what was counted from the server's start until
    the watch began.
    """

    def __init__(self, observation: Observation) -> None:
        self.server = observation.server
        self.under_way = observation.under_way
        readings = observation.readings
        self.moments = [
            r for r in readings if r.num_running is not None or r.num_waiting is not None
        ]
        self.state = over_time(self.moments) if self.moments else Reading()
        watched = [r for r in readings if _is_watched(r)]
        self.watched = over_time(watched) if watched else None
        self.life = next((r for r in reversed(readings) if r.since_start), None)

    # ---- The state ----

    @property
    def is_series(self) -> bool:
        """Whether there are moments enough to tell what stays from what passes."""
        return len(self.moments) >= 3

    @property
    def running(self) -> list[float]:
        return [r.num_running for r in self.moments if r.num_running is not None]

    @property
    def waiting(self) -> list[float]:
        return [r.num_waiting for r in self.moments if r.num_waiting is not None]

    @property
    def is_queueing(self) -> bool:
        """Whether somebody waits most of the time."""
        waiting = self.waiting
        return bool(waiting) and _share(waiting, lambda n: n >= 1) >= _LEAST_WAITING_SHARE

    @property
    def waiting_share(self) -> float:
        """Of the moments, those in which somebody waited."""
        return _share(self.waiting, lambda n: n >= 1)

    @property
    def has_work_throughout(self) -> bool:
        return bool(self.moments) and all(_work(r) > 0 for r in self.moments)

    @property
    def is_at_slot_cap(self) -> bool | None:
        """Most of the time that somebody waits. None where the cap is not known."""
        cap = self.state.max_num_seqs
        crowded = [r for r in self.moments if (r.num_waiting or 0.0) >= 1] or self.moments
        running = [r.num_running for r in crowded if r.num_running is not None]
        if cap is None or not running:
            return None
        return _share(running, lambda n: n >= 0.97 * cap) >= _LEAST_PINNED_SHARE

    def is_pinned(self, values: Sequence[float]) -> bool:
        """At its largest value most of the time, as what runs into a ceiling is."""
        top = max(values, default=0.0)
        return (
            len(values) >= 3
            and top > 0
            and _share(values, lambda v: v >= 0.99 * top) >= _LEAST_PINNED_SHARE
        )

    # ---- The watch ----

    @property
    def watched_s(self) -> float:
        return (self.watched.interval_s or 0.0) if self.watched else 0.0

    def per_second(self, name: str) -> float | None:
        """The rate of a count over the watch."""
        amount = getattr(self.watched, name, None)
        return amount / self.watched_s if amount is not None and self.watched_s else None

    @property
    def num_ended(self) -> float | None:
        ended = self.watched.ended if self.watched else None
        return None if ended is None else sum(ended.values())

    @property
    def busy_share(self) -> float | None:
        """Of the watch, what passed within steps, for each engine.

        Where a server does not tell, its steps take as long as its tokens lie apart.
        """
        watched = self.watched
        if watched is None or not self.watched_s:
            return None
        busy_s = watched.busy_s
        if busy_s is None and watched.num_steps is not None:
            gap_s = watched.itl_s.mean if watched.itl_s else None
            if gap_s is None:
                return 0.0 if watched.num_steps == 0 and not any(self.running) else None
            busy_s = watched.num_steps * gap_s
        if busy_s is None:
            return None
        return min(1.0, busy_s / self.watched_s / (self.state.num_engines or 1))

    @property
    def prefill_share(self) -> float | None:
        """Of the time that requests were computed in, what went into their prompts.

        Since the server's start where the watch does not tell: `is_prefill_share_watched`.
        """
        for reading in (self.watched, self.life):
            share = _prefill_share(reading)
            if share is not None:
                return share
        return None

    @property
    def is_prefill_share_watched(self) -> bool:
        return _prefill_share(self.watched) is not None

    @property
    def num_computed_per_output(self) -> float | None:
        """Prompt tokens computed for each output token."""
        reading = self.watched or self.life
        if reading is not None and reading.num_steps and reading.num_prompt_tokens == 0:
            return 0.0  # whatever came out
        if reading is None or not reading.num_output_tokens or reading.num_prompt_tokens is None:
            return None
        computed = reading.num_prompt_tokens - (reading.num_cached_tokens or 0.0)
        return max(0.0, computed) / reading.num_output_tokens

    @property
    def num_tokens_per_step(self) -> float | None:
        """Prompt tokens computed and output tokens, of a step."""
        reading = self.watched or self.life
        if reading is None or not reading.num_steps or reading.num_output_tokens is None:
            return None
        computed = (reading.num_prompt_tokens or 0.0) - (reading.num_cached_tokens or 0.0)
        per_step = (max(0.0, computed) + reading.num_output_tokens) / reading.num_steps
        # A prompt counts whole with its last chunk: in a short watch a step may seem to do more.
        return min(per_step, self.state.max_num_batched_tokens or per_step)

    @property
    def num_preempted(self) -> float:
        """During the watch; 0 where nobody says."""
        return (self.watched.num_preemptions or 0.0) if self.watched else 0.0


def _is_watched(reading: Reading) -> bool:
    return bool(reading.interval_s) and not reading.since_start and not reading.restarted


def _work(reading: Reading) -> float:
    return (reading.num_running or 0.0) + (reading.num_waiting or 0.0)


def _share(values: Sequence[float], holds: Callable[[float], bool]) -> float:
    return mean([float(holds(value)) for value in values]) or 0.0


def _prefill_share(reading: Reading | None) -> float | None:
    """By the engine's own clock, or else by the phases of requests."""
    if reading is None:
        return None
    prefill_s, decode_s = reading.prefill_busy_s, reading.decode_busy_s
    if prefill_s is None and reading.prefill_s and reading.decode_s:
        prefill_s, decode_s = reading.prefill_s.total, reading.decode_s.total
    if prefill_s is None or decode_s is None or not prefill_s + decode_s > 0:
        return None
    return prefill_s / (prefill_s + decode_s)
