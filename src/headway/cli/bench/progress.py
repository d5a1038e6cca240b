"""What a running load shows."""

from __future__ import annotations

import shutil
import sys

from headway.bench.tally import Tally


class Progress:
    """One line on standard error, if that is a terminal."""

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown and sys.stderr.isatty()
        self.heading = ""
        self.num_due: int | None = None

    def tick(self, tally: Tally) -> None:
        if not self._is_shown:
            return
        due = "" if self.num_due is None else f" of {self.num_due:,}"
        bad = sum(not outcome.is_served for outcome in tally.outcomes[-10_000:])
        failed = f", {bad:,} not served" if bad else ""
        line = f"{self.heading}{len(tally.outcomes):,}{due} ended, {tally.num_open:,} open{failed}"
        print(f"\r{line[: shutil.get_terminal_size().columns - 1]}\x1b[K", end="", file=sys.stderr)
        sys.stderr.flush()

    def clear(self) -> None:
        if self._is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
