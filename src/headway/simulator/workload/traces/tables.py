"""Public traces that are tables: Azure's LLM inference traces and BurstGPT.

Neither promises an order, so a table is read whole, 24 bytes a request, and sorted by arrival;
time begins with the first request. Rows without prompt or output tokens are failed requests: they
are left out and counted.
"""

from __future__ import annotations

import csv
import re
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal, DecimalException
from functools import lru_cache
from pathlib import Path

import numpy as np

from headway.simulator.workload.base import Segment
from headway.simulator.workload.exact_math import Integers
from headway.simulator.workload.traces.text import lines
from headway.simulator.workload.traces.trace import Row, TraceFile, Window
from headway.simulator.workload.waits import LATEST_NS, SECOND

MAX_TOKENS = 2**31 - 1
_CHUNK = 4096
# 2023: "2023-11-16 18:17:03.9799600"; 2024: "2024-05-10 00:00:00.009930+00:00".
_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d):([0-5]\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)?"
)


@dataclass(frozen=True, slots=True)
class Layout:
    """The columns of a format that are read; others are left alone."""

    name: str
    time: str
    prompt: str
    output: str
    time_ns: Callable[[str], int]

    @property
    def columns(self) -> tuple[str, str, str]:
        return self.time, self.prompt, self.output


@dataclass(frozen=True, slots=True)
class _Table:
    """[requests] each, in order of arrival."""

    arrival_ns: Integers
    prompt: Integers
    output: Integers

    def rows(self) -> Iterator[Row]:
        for start in range(0, len(self.arrival_ns), _CHUNK):
            part = slice(start, start + _CHUNK)
            columns = (self.arrival_ns[part], self.prompt[part], self.output[part])
            for index, (arrival_ns, prompt, output) in enumerate(
                zip(*(column.tolist() for column in columns), strict=True), start
            ):
                yield Row(
                    str(index),
                    arrival_ns,
                    (Segment(2 * index, prompt),),
                    Segment(2 * index + 1, output),
                )


def read_table(path: Path, layout: Layout, window: Window) -> TraceFile:
    """Raises ValueError with file and line for a row that is not one."""
    times, prompts, outputs = array("q"), array("q"), array("q")
    num_failed = 0
    for number, (time, prompt, output) in _cells(path, layout):
        try:
            num_prompt, num_output = _tokens(prompt), _tokens(output)
            time_ns = layout.time_ns(time)
        except ValueError as error:
            raise ValueError(f"{path}:{number}: {error}") from None
        if num_prompt and num_output:
            times.append(time_ns)
            prompts.append(num_prompt)
            outputs.append(num_output)
        else:
            num_failed += 1
    if not times:
        raise ValueError(f"{path}: has no requests")
    table, was_sorted = _sorted(times, prompts, outputs)
    notes = []
    if num_failed:
        total = num_failed + len(times)
        notes.append(f"{num_failed} of {total} rows have no prompt or no output and are left out")
    if not was_sorted:
        notes.append("the rows were not in order of arrival and have been sorted")
    return TraceFile(path, layout.name, table.rows, window, tuple(notes))


def _sorted(times: array[int], prompts: array[int], outputs: array[int]) -> tuple[_Table, bool]:
    """Rows of equal times keep their order."""
    arrival_ns = np.frombuffer(times, dtype=np.int64)
    columns = [np.frombuffer(column, dtype=np.int64) for column in (prompts, outputs)]
    was_sorted = bool((np.diff(arrival_ns) >= 0).all())
    if not was_sorted:
        order = np.argsort(arrival_ns, kind="stable")
        arrival_ns, columns = arrival_ns[order], [column[order] for column in columns]
    return _Table(arrival_ns - arrival_ns[0], *columns), was_sorted


def _cells(path: Path, layout: Layout) -> Iterator[tuple[int, tuple[str, str, str]]]:
    numbered = _decoded(path)
    header = next(csv.reader([next(numbered, (1, ""))[1]]), [])
    twice = [name for name in layout.columns if header.count(name) > 1]
    if twice:
        raise ValueError(f"{path}:1: the column {twice[0]!r} is there twice")
    missing = [name for name in layout.columns if name not in header]
    if missing:
        raise ValueError(f"{path}:1: {layout.name} traces have a column {missing[0]!r}")
    places = [header.index(name) for name in layout.columns]
    for number, line in numbered:
        cells = line.split(",") if '"' not in line else next(csv.reader([line]))
        if len(cells) != len(header):
            raise ValueError(f"{path}:{number}: {len(cells)} cells for {len(header)} columns")
        time, prompt, output = (cells[place] for place in places)
        yield number, (time, prompt, output)


def _decoded(path: Path) -> Iterator[tuple[int, str]]:
    for number, line in lines(path):
        try:
            yield number, line.decode("utf-8-sig").rstrip("\r")
        except UnicodeDecodeError:
            raise ValueError(f"{path}:{number}: is not UTF-8") from None


def _tokens(text: str) -> int:
    # int() alone would take signs, spaces and underscores.
    if not (text.isascii() and text.isdigit()):
        raise ValueError(f"{text!r} is not a number of tokens")
    count = int(text)
    if count > MAX_TOKENS:
        raise ValueError(f"{text} is too large a number of tokens")
    return count


def _seconds_ns(text: str) -> int:
    try:
        time_ns = Decimal(text) * SECOND
        if 0 <= time_ns <= LATEST_NS:
            return int(time_ns)
    except DecimalException:
        pass
    raise ValueError(f"{text!r} is not a time in seconds")


def _timestamp_ns(text: str) -> int:
    """Nanoseconds since 1970, in UTC unless the text says otherwise."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is not a time like 2024-05-10 00:00:00.009930+00:00")
    minute, seconds, fraction, zone = match.groups()
    whole = _minute_seconds(minute, zone or "+00:00") + int(seconds)
    time_ns = whole * SECOND + int((fraction or "0").ljust(9, "0"))
    if not 0 <= time_ns <= LATEST_NS:
        raise ValueError(f"{text!r} is not a time between 1970 and 2116")
    return time_ns


@lru_cache(maxsize=16)
def _minute_seconds(minute: str, zone: str) -> int:
    return int(datetime.fromisoformat(minute + zone).timestamp())


AZURE = Layout("azure", "TIMESTAMP", "ContextTokens", "GeneratedTokens", _timestamp_ns)
BURST_GPT = Layout("burstgpt", "Timestamp", "Request tokens", "Response tokens", _seconds_ns)
