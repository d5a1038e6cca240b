"""How far something is, in one line that is written over."""

from __future__ import annotations

import shutil
import sys


class StatusLine:
    """On standard error, if that is a terminal."""

    def __init__(self, *, is_wanted: bool = True) -> None:
        self.is_shown = is_wanted and sys.stderr.isatty()

    def say(self, line: str) -> None:
        if self.is_shown:
            width = shutil.get_terminal_size().columns - 1
            print(f"\r{line[:width]}\x1b[K", end="", file=sys.stderr, flush=True)

    def clear(self) -> None:
        if self.is_shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
