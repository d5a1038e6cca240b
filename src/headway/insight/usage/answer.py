"""What one answer used, and why it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, NamedTuple

from headway.simulator.workload.lengths import MAX_LENGTH


class Ending(IntEnum):
    """Why an answer ended. The numbers fill a column of bytes."""

    UNKNOWN = 0  # nobody says
    STOP = 1  # by itself: a stop token, a stop string, a call of a tool
    LENGTH = 2  # cut off: max_tokens, or the end of the context
    REPETITION = 3
    ABORT = 4
    ERROR = 5
    OTHER = 6


_ENDINGS = {
    "stop": Ending.STOP,
    "eos": Ending.STOP,
    "eos_token": Ending.STOP,
    "stop_sequence": Ending.STOP,
    "end_turn": Ending.STOP,
    "tool_calls": Ending.STOP,
    "tool_use": Ending.STOP,
    "function_call": Ending.STOP,
    "completed": Ending.STOP,
    "length": Ending.LENGTH,
    "max_tokens": Ending.LENGTH,
    "max_output_tokens": Ending.LENGTH,
    "repetition": Ending.REPETITION,
    "abort": Ending.ABORT,
    "aborted": Ending.ABORT,
    "cancelled": Ending.ABORT,
    "error": Ending.ERROR,
    "failed": Ending.ERROR,
}
_LONGEST_MS = 1e12  # 31 years


class Answer(NamedTuple):
    """None: not said. `num_choices` of them share `completion_tokens`."""

    completion_tokens: int
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    max_tokens: int | None = None  # that the client declared
    ending: Ending = Ending.UNKNOWN
    model: str = ""
    adapter: str = ""
    num_choices: int = 1
    at_s: float | None = None  # created or arrived, seconds since 1970 or since some beginning
    num_preemptions: int | None = None
    queue_ms: float | None = None


class UnusableError(ValueError):
    """A line that no answer can be read from; its message is the reason, the same for its kind."""


def ending_of(given: Any) -> Ending:
    """From a finish_reason, whoever's words these are."""
    if given is None or given == "":
        return Ending.UNKNOWN
    return _ENDINGS.get(given.lower(), Ending.OTHER) if isinstance(given, str) else Ending.OTHER


def count_of(given: Any) -> int | None:
    """A count of tokens; None if absent. Raises UnusableError for what is not one."""
    if given is None or given == "":
        return None
    try:
        count = int(given)
        is_whole = not isinstance(given, bool) and (isinstance(given, str) or count == given)
    except (TypeError, ValueError, OverflowError):
        is_whole = False
    if not is_whole or not 0 <= count <= MAX_LENGTH:
        raise UnusableError(f"a count of tokens that is no whole number up to {MAX_LENGTH:,}")
    return count


def milliseconds_of(given: Any) -> float | None:
    """A length of time; None if absent. Raises ValueError or TypeError for what is not one."""
    if given is None:
        return None
    if not 0 <= (length := float(given)) <= _LONGEST_MS:
        raise ValueError(f"no length of time: {length}")
    return length


def lenient(read: Callable[[Any], Any], given: Any) -> Any:
    """What is worth having and no reason to drop an answer: None where it cannot be read."""
    try:
        return read(given)
    except (TypeError, ValueError, OverflowError):
        return None


def first_of(values: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """Of several names for one thing, the first that is there."""
    return next((values[name] for name in names if values.get(name) not in (None, "")), None)


def plain_text(given: Any, longest: int = 80) -> str:
    """A name as it may be shown: one line, nothing that a terminal obeys, not too long."""
    if not isinstance(given, str):
        return ""
    text = "".join(c if c.isprintable() else "?" for c in given[: longest + 1])
    return text if len(text) <= longest else text[: longest - 3] + "..."
