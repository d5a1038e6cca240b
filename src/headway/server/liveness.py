"""Health by progress: a busy engine is healthy, a hung or dead one is not."""

from __future__ import annotations

from dataclasses import dataclass

from headway.wire import EngineStats

HUNG_AFTER_NS = 10_000_000_000


@dataclass(frozen=True, slots=True)
class Health:
    is_ok: bool
    reason: str
    last_turn_age_s: float


class Liveness:
    """What is known of the engine's life. `death` is the sentence that ended it, or None."""

    def __init__(self, now_ns: int) -> None:
        self.death: str | None = None
        self._last_turn_ns = now_ns
        self._last_progress_ns = now_ns
        self._step_index = -1

    def on_turn(self, stats: EngineStats, now_ns: int) -> None:
        self._last_turn_ns = now_ns
        if stats.step_index != self._step_index:
            self._step_index = stats.step_index
            self._last_progress_ns = now_ns

    def on_progress(self, now_ns: int) -> None:
        """Work arrives at an idle engine: its time to show progress begins now."""
        self._last_progress_ns = now_ns

    def health(self, now_ns: int, *, has_work: bool) -> Health:
        age_s = (now_ns - self._last_turn_ns) / 1e9
        if self.death is not None:
            return Health(False, self.death, age_s)
        stuck_ns = now_ns - self._last_progress_ns
        if has_work and stuck_ns > HUNG_AFTER_NS:
            reason = f"work is pending and no step has ended for {stuck_ns / 1e9:.0f} s"
            return Health(False, reason, age_s)
        return Health(True, "ok", age_s)
