"""What a running load shows."""

from __future__ import annotations

from headway.bench.tally import Tally
from headway.cli.status_line import StatusLine


class Progress:
    """How many requests have ended, and how many are open."""

    def __init__(self, *, is_shown: bool) -> None:
        self._line = StatusLine(is_wanted=is_shown)
        self.heading = ""
        self.num_due: int | None = None

    def tick(self, tally: Tally) -> None:
        if not self._line.is_shown:
            return
        due = "" if self.num_due is None else f" of {self.num_due:,}"
        bad = sum(not outcome.is_served for outcome in tally.outcomes[-10_000:])
        failed = f", {bad:,} not served" if bad else ""
        ended = f"{len(tally.outcomes):,}{due} ended, {tally.num_open:,} open{failed}"
        self._line.say(self.heading + ended)

    def clear(self) -> None:
        self._line.clear()
