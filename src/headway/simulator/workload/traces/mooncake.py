"""Mooncake's traces: JSON lines with a timestamp in milliseconds and ids of blocks of 512 tokens.

An id stands for its block and all before it; equal ids are equal beginnings. In order of arrival:
the published files are, and a line that is not is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec

from headway.simulator.workload.base import Segment
from headway.simulator.workload.traces.text import lines
from headway.simulator.workload.traces.trace import Names, Row, TraceFile, Window, blocks

BLOCK_TOKENS = 512
_MILLISECOND = 1_000_000


class _Line(msgspec.Struct, forbid_unknown_fields=True):
    timestamp: Annotated[float, msgspec.Meta(ge=0, le=1e12)]
    input_length: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    output_length: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]
    hash_ids: list[int]


def open_mooncake(path: Path, window: Window) -> TraceFile:
    note = "an output of 0 tokens counts as 1: a prefill gives a token"
    return TraceFile(path, "mooncake", lambda: _rows(path), window, (note,))


def _rows(path: Path) -> Iterator[Row]:
    names = Names()
    decode = msgspec.json.Decoder(_Line).decode
    last_ns = 0
    for number, text in lines(path):
        try:
            line = decode(text)
            arrival_ns = round(line.timestamp * _MILLISECOND)
            if arrival_ns < last_ns:
                raise ValueError(
                    f"timestamp {line.timestamp:g} is before the {last_ns / _MILLISECOND:g} "
                    "above it: sort the file"
                )
            last_ns = arrival_ns
            prompt = tuple(blocks(names, line.hash_ids, BLOCK_TOKENS, line.input_length))
        except (ValueError, msgspec.DecodeError) as error:
            raise ValueError(f"{path}:{number}: {error}") from None
        output = Segment(names.fresh(), max(line.output_length, 1))
        yield Row(f"line-{number}", arrival_ns, prompt, output)
