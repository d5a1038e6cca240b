"""Usage as a table: CSV with a header, whose columns are called as the fields of a usage are."""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence

from headway.insight.usage.answer import (
    Answer,
    UnusableError,
    count_of,
    ending_of,
    first_of,
    lenient,
    milliseconds_of,
    plain_text,
)
from headway.insight.usage.times import seconds_of

_NAMES = {
    "completion": (
        "completion_tokens",
        "output_tokens",
        "generated_tokens",
        "generatedtokens",
        "response_tokens",
        "usage_completion_tokens",
        "usage_output_tokens",
    ),
    "prompt": (
        "prompt_tokens",
        "input_tokens",
        "contexttokens",
        "request_tokens",
        "usage_prompt_tokens",
        "usage_input_tokens",
    ),
    "cached": ("cached_tokens", "cache_read_input_tokens", "usage_cached_tokens"),
    "declared": ("max_tokens", "max_completion_tokens", "max_output_tokens"),
    "ending": ("finish_reason", "finished_reason", "stop_reason", "status"),
    "model": ("model", "model_name"),
    "adapter": ("adapter", "lora", "lora_name"),
    "time": ("arrival_s", "timestamp", "created", "created_at", "time"),
    "preemptions": ("preemptions", "num_preemptions"),
    "queue": ("queue_time_ms",),
}


def is_header(line: bytes) -> bool:
    """Of a table that tells completion tokens."""
    names = _cells(line)
    return any(name in map(_name, names) for name in _NAMES["completion"])


class Rows:
    """Reads the lines under a header."""

    def __init__(self, header: bytes) -> None:
        self._names = [_name(cell) for cell in _cells(header)]

    def answer(self, line: bytes) -> Answer:
        """Raises UnusableError."""
        cells = _cells(line)
        if len(cells) != len(self._names):
            raise UnusableError("not as many cells as the header has")
        row = dict(zip(self._names, cells, strict=True))
        said = {field: first_of(row, names) for field, names in _NAMES.items()}
        completion_tokens = count_of(said["completion"])
        if completion_tokens is None:
            raise UnusableError("no usage in it")
        return Answer(
            completion_tokens=completion_tokens,
            prompt_tokens=count_of(said["prompt"]),
            cached_tokens=lenient(count_of, said["cached"]),
            max_tokens=lenient(count_of, said["declared"]),
            ending=ending_of(said["ending"]),
            model=plain_text(said["model"]),
            adapter=plain_text(said["adapter"]),
            at_s=None if said["time"] is None else lenient(seconds_of, said["time"]),
            num_preemptions=lenient(count_of, said["preemptions"]),
            queue_ms=lenient(milliseconds_of, said["queue"]),
        )


def _cells(line: bytes) -> Sequence[str]:
    try:
        return next(csv.reader([line.decode().rstrip("\r")]), [])
    except (UnicodeDecodeError, csv.Error):
        return []


def _name(cell: str) -> str:
    return re.sub(r"\W+", "_", cell.strip().lower())
