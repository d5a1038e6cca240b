"""When a log line was written, whatever of a date it has."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

_DATE = re.compile(r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?")
_DAY = re.compile(r"(?<!\d)(\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)")
_TIME = re.compile(r"(?<![\d:])(\d\d):(\d\d):(\d\d)(?![\d:])")
_A_LEAP_YEAR = 2000  # where a log has none
_BACK = timedelta(hours=12)  # so far back is the next day, or year: less is disorder


class LogClock:
    """Reads the times of one log, in its order. A date without a year begins in some year."""

    def __init__(self) -> None:
        self._last: datetime | None = None

    def read(self, text: str) -> float | None:
        """Seconds of a clock that goes on at midnight and new year; None for a line without time.

        `text`: what stands before the line's own words.
        """
        try:
            when = self._dated(text) or self._of_day(text) or self._of_time(text)
        except ValueError:  # as the 31st of June
            return None
        if when is None:
            return None
        self._last = when
        return when.timestamp()

    def _dated(self, text: str) -> datetime | None:
        match = _DATE.search(text)
        if match is None:
            return None
        *parts, fraction = match.groups()
        micros = int((fraction or "0").ljust(6, "0"))
        year, month, day, hour, minute, second = map(int, parts)
        return datetime(year, month, day, hour, minute, second, micros, tzinfo=UTC)

    def _of_day(self, text: str) -> datetime | None:
        match = _DAY.search(text)
        if match is None:
            return None
        month, day, hour, minute, second = map(int, match.groups())
        year = self._last.year if self._last else _A_LEAP_YEAR
        when = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
        if self._last and self._last - when > _BACK:
            when = when.replace(year=year + 1)
        return when

    def _of_time(self, text: str) -> datetime | None:
        match = _TIME.search(text)
        if match is None:
            return None
        hour, minute, second = map(int, match.groups())
        last = self._last or datetime(_A_LEAP_YEAR, 1, 1, tzinfo=UTC)
        when = last.replace(hour=hour, minute=minute, second=second, microsecond=0)
        return when + timedelta(days=1) if last - when > _BACK else when
