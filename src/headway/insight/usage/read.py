"""Reads a file of usage: JSON lines, server-sent events or CSV, plain, .gz or .zst."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from headway.insight.usage.answer import Answer, UnusableError
from headway.insight.usage.body import part_of
from headway.insight.usage.columns import Columns, LeftOut, Usage
from headway.insight.usage.streams import Streams
from headway.insight.usage.table import Rows, is_header
from headway.simulator.workload.traces.text import lines

_BOM = b"\xef\xbb\xbf"
_EVENT_FIELDS = (b"event:", b"id:", b"retry:", b":")  # of a stream, which say nothing here
_NUM_SNIFFED = 20


def read_usage(path: Path | str) -> Usage:
    """All answers of a file, in its order. Lines without one are counted, not fatal.

    Raises ValueError with one sentence for a file that cannot be read, or has no answer at all.
    """
    path = Path(path)
    reader = _Reader()
    for number, line in lines(path):
        reader.take(number, line)
    usage = reader.end()
    if not len(usage):
        reasons = "; ".join(
            f"{reason} (line {left.first_line}{_more(left.count)})"
            for reason, left in list(usage.left_out.items())[:3]
        )
        raise ValueError(
            f"{path}: has no answer with a usage: {reasons or 'is empty'}. A line of it should be "
            "a response's JSON with usage.completion_tokens, or it should be CSV with a column "
            "completion_tokens"
        )
    return usage


def looks_like_usage(path: Path | str) -> bool:
    """Whether one of its first lines tells completion tokens. Raises ValueError if unreadable."""
    first = _Reader()
    for number, line in islice(lines(Path(path)), _NUM_SNIFFED):
        first.take(number, line)
    return bool(len(first.end()))


def _more(count: int) -> str:
    return f" and {count - 1:,} more" if count > 1 else ""


class _Reader:
    def __init__(self) -> None:
        self._columns = Columns()
        self._streams = Streams()
        self._left_out: dict[str, LeftOut] = {}
        self._rows: Rows | None = None
        self._is_first = True

    def take(self, number: int, line: bytes) -> None:
        line = line.removeprefix(_BOM) if number == 1 else line
        if self._is_first:
            self._is_first = False
            if is_header(line):
                self._rows = Rows(line)
                return
        try:
            for answer in self._answers(line.strip()):
                self._columns.add(answer)
        except UnusableError as error:
            self._leave_out(str(error), number)

    def end(self) -> Usage:
        for answer in self._streams.rest():
            self._columns.add(answer)
        if self._streams.num_without:
            left_out = LeftOut(0, self._streams.num_without)
            self._left_out["a stream that ends without a usage"] = left_out
        return self._columns.usage(self._left_out)

    def _answers(self, line: bytes) -> Iterator[Answer]:
        if self._rows is not None:
            yield self._rows.answer(line)
            return
        if line.startswith(_EVENT_FIELDS) or line == b"data: [DONE]":
            return
        if line.startswith(b"["):
            raise UnusableError("a JSON array, of which each object needs a line: jq -c '.[]'")
        part = part_of(line.removeprefix(b"data:"))
        if part is None:
            return
        if part.key:
            yield from self._streams.add(part)
        elif part.used is not None:
            yield part.used

    def _leave_out(self, reason: str, number: int) -> None:
        left_out = self._left_out.get(reason)
        if left_out is None:
            self._left_out[reason] = LeftOut(number)
        else:
            left_out.count += 1
