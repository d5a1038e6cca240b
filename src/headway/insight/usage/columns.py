"""A file of usage as columns: 42 bytes an answer, whatever it said."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from headway.insight.usage.answer import Answer, Ending

UNSAID = -1  # in a column of counts
MAX_GROUPS = 1000  # models and adapters told apart
_COUNTS = ("completion_tokens", "prompt_tokens", "cached_tokens", "max_tokens", "num_preemptions")

Integers = NDArray[np.int32]


class Group(NamedTuple):
    """Whose answers are looked at together."""

    model: str
    adapter: str

    @property
    def name(self) -> str:
        """For people; "" where the file names nobody."""
        return " + ".join(part for part in self if part)


OTHERS = Group("other models", "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Columns of equal length, [answers], in the order of the file; counts are UNSAID where absent.

    `groups[group[i]]` is whose answer i is. `at_s` and `queue_ms` are NaN where absent. `left_out`:
    lines that gave no answer, by the reason, with the first such line of the file.
    """

    completion_tokens: Integers  # of all choices together
    prompt_tokens: Integers
    cached_tokens: Integers
    max_tokens: Integers
    num_preemptions: Integers
    num_choices: Integers
    ending: NDArray[np.uint8]
    group: Integers
    at_s: NDArray[np.float64]
    queue_ms: NDArray[np.float32]
    groups: tuple[Group, ...]
    left_out: Mapping[str, LeftOut] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.completion_tokens)

    def lengths(self) -> Integers:
        """Tokens of one answer, [answers]; of several choices their mean, rounded."""
        return np.rint(self.completion_tokens / self.num_choices).astype(np.int32)

    def of(self, rows: NDArray[np.bool_]) -> Usage:
        """Some of the answers; `left_out` stays with the whole."""
        names = (f for f in self.__slots__ if f not in ("groups", "left_out"))
        columns: dict[str, Any] = {name: getattr(self, name)[rows] for name in names}
        return Usage(**columns, groups=self.groups)

    def ended_by(self, ending: Ending) -> NDArray[np.bool_]:
        return self.ending == ending


@dataclass(slots=True)
class LeftOut:
    """Lines that gave no answer, all for one reason."""

    first_line: int
    count: int = 1


class Columns:
    """Usage while it is read."""

    def __init__(self) -> None:
        self._counts = {name: array("i") for name in _COUNTS}
        self._num_choices, self._group = array("i"), array("i")
        self._ending = array("B")
        self._at_s, self._queue_ms = array("d"), array("f")
        self._groups: dict[Group, int] = {}

    def add(self, answer: Answer) -> None:
        for name, column in self._counts.items():
            count = getattr(answer, name)
            column.append(UNSAID if count is None else count)
        self._num_choices.append(answer.num_choices)
        self._ending.append(answer.ending)
        self._group.append(self._group_of(answer))
        self._at_s.append(np.nan if answer.at_s is None else answer.at_s)
        self._queue_ms.append(np.nan if answer.queue_ms is None else answer.queue_ms)

    def usage(self, left_out: Mapping[str, LeftOut]) -> Usage:
        counts: dict[str, Any] = {
            name: np.frombuffer(column, np.int32) for name, column in self._counts.items()
        }
        return Usage(
            **counts,
            num_choices=np.frombuffer(self._num_choices, np.int32),
            ending=np.frombuffer(self._ending, np.uint8),
            group=np.frombuffer(self._group, np.int32),
            at_s=np.frombuffer(self._at_s, np.float64),
            queue_ms=np.frombuffer(self._queue_ms, np.float32),
            groups=tuple(self._groups),
            left_out=left_out,
        )

    def _group_of(self, answer: Answer) -> int:
        group = Group(answer.model, answer.adapter)
        if group not in self._groups and len(self._groups) >= MAX_GROUPS:
            group = OTHERS
        return self._groups.setdefault(group, len(self._groups))
