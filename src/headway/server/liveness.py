"""Health by progress: a busy engine is healthy, a hung or dead one is not."""

from __future__ import annotations

from dataclasses import dataclass

from headway.wire import AliveMessage, EngineStats

_NS = 1_000_000_000
SLOWEST_NS_PER_TOKEN = 20_000_000  # until slower is seen
_TIMES_SLOWEST = 4
# Reading the weights is most of a small step: fewer tokens than these say little about one token.
_SHARED_BY = 32


@dataclass(frozen=True, slots=True)
class Health:
    is_ok: bool
    reason: str
    last_turn_age_s: float


class Liveness:
    """What is known of the engine's progress; all times on one monotonic clock.

    Hung is an engine that has said nothing for `timeout_ns`, that has work and no step in progress
    for so long, or whose step takes more than `timeout_ns` plus four times what its tokens take at
    the slowest.
    """

    def __init__(self, now_ns: int, timeout_ns: int = 10 * _NS) -> None:
        self._timeout_ns = timeout_ns
        self._last_turn_ns = now_ns
        self._last_progress_ns = now_ns
        self._last_heard_ns = now_ns
        self._step_index = -1
        self._step: AliveMessage | None = None  # the step in progress, when one is known of
        self._was_silent = False  # for long, in this step
        self._slowest_ns_per_token = SLOWEST_NS_PER_TOKEN

    def on_turn(self, stats: EngineStats, now_ns: int) -> None:
        self._hear(now_ns)
        self._last_turn_ns = now_ns
        self._measure(now_ns)
        if stats.step_index != self._step_index:
            self._step_index = stats.step_index
            self._last_progress_ns = now_ns

    def on_alive(self, alive: AliveMessage, now_ns: int) -> None:
        self._hear(now_ns)
        self._step = alive if alive.step_began_ns is not None else None

    def on_progress(self, now_ns: int) -> None:
        """Work arrives at an idle engine: its time to show progress begins now."""
        self._last_progress_ns = now_ns

    def health(self, now_ns: int, *, has_work: bool) -> Health:
        age_s = (now_ns - self._last_turn_ns) / _NS
        reason = self._trouble(now_ns, has_work)
        return Health(reason is None, reason or "ok", age_s)

    def allowance_ns(self, num_tokens: int) -> int:
        """How long a step of so many tokens may take."""
        return self._timeout_ns + _TIMES_SLOWEST * num_tokens * self._slowest_ns_per_token

    def _hear(self, now_ns: int) -> None:
        if now_ns - self._last_heard_ns > self._timeout_ns // 2:
            self._was_silent = True
        self._last_heard_ns = now_ns

    def _trouble(self, now_ns: int, has_work: bool) -> str | None:
        silent_ns = now_ns - self._last_heard_ns
        if silent_ns > self._timeout_ns:
            return f"the engine is hung: nothing heard of it for {silent_ns / _NS:.0f} s"
        if self._step is not None and self._step.step_began_ns is not None:
            return self._step_trouble(self._step, now_ns - self._step.step_began_ns)
        stuck_ns = now_ns - self._last_progress_ns
        if has_work and stuck_ns > self._timeout_ns:
            stuck_s = stuck_ns / _NS
            return f"the engine is hung: work is pending and no step has ended for {stuck_s:.0f} s"
        return None

    def _step_trouble(self, step: AliveMessage, took_ns: int) -> str | None:
        allowed_ns = self.allowance_ns(step.step_num_tokens)
        if took_ns <= allowed_ns:
            return None
        return (
            f"the engine is hung: step {step.step_index} with {step.step_num_tokens} tokens runs "
            f"for {took_ns / _NS:.0f} s, and {allowed_ns / _NS:.0f} s would be long"
        )

    def _measure(self, now_ns: int) -> None:
        """A turn came, so the step that we knew of has ended. What a stopped process took to end
        one is no measure: it would earn a longer allowance by it.
        """
        step, self._step = self._step, None
        was_silent, self._was_silent = self._was_silent, False
        if step is None or step.step_began_ns is None or was_silent:
            return
        num_tokens = max(step.step_num_tokens, _SHARED_BY)
        per_token = (now_ns - step.step_began_ns) // num_tokens
        self._slowest_ns_per_token = max(self._slowest_ns_per_token, per_token)
