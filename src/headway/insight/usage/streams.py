"""Chunks of streamed answers put together: the reason comes in one, the usage in a later one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from headway.insight.usage.answer import Answer, Ending
from headway.insight.usage.body import Part

MAX_OPEN = 10_000  # streams begun and not ended, of which the oldest is given up


@dataclass(slots=True)
class _Open:
    ending: Ending = Ending.UNKNOWN
    used: Answer | None = None
    num_choices: int = 1

    def answer(self) -> Answer | None:
        if self.used is None:
            return None
        return self.used._replace(ending=self.ending, num_choices=self.num_choices)


class Streams:
    """Streams whose last chunk has not come. `num_without`: those that ended without a usage."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        self.num_without = 0

    def add(self, part: Part) -> Iterator[Answer]:
        """The answers that are whole now."""
        stream = self._open.pop(part.key, None) or _Open()
        self._open[part.key] = stream  # the last to be given up
        if part.ending is not Ending.UNKNOWN:
            stream.ending = part.ending
        if part.used is not None:
            stream.used = part.used
        stream.num_choices = max(stream.num_choices, part.num_choices)
        if part.is_last:
            yield from self._close(part.key)
        elif len(self._open) > MAX_OPEN:
            yield from self._close(next(iter(self._open)))

    def rest(self) -> Iterator[Answer]:
        """At the end of the file."""
        for key in list(self._open):
            yield from self._close(key)

    def _close(self, key: str) -> Iterator[Answer]:
        answer = self._open.pop(key).answer()
        if answer is None:
            self.num_without += 1
        else:
            yield answer
