"""Times as files have them: numbers since some beginning, or dates."""

from __future__ import annotations

import math
from datetime import UTC, datetime

_LEAST_MILLISECONDS = 1e11  # seconds of the year 5138; in milliseconds, 1973


def seconds_of(given: object) -> float:
    """Seconds since 1970, or since whatever a small number counts from.

    A date without a zone is UTC. Raises ValueError or TypeError for what is no time.
    """
    if isinstance(given, str):
        try:
            number = float(given)
        except ValueError:
            return seconds_of_date(given)
    elif isinstance(given, int | float) and not isinstance(given, bool):
        number = float(given)
    else:
        raise TypeError("neither a number nor a date")
    if not math.isfinite(number):
        raise ValueError("no finite number")
    return number / 1000 if abs(number) >= _LEAST_MILLISECONDS else number


def seconds_of_date(text: str) -> float:
    """Of an ISO date and time. Raises ValueError."""
    when = datetime.fromisoformat(text.strip())
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
