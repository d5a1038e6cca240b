"""Who did what in each step: a log, and the spans that lanes are drawn of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from headway.drive.record import StepRecord
from headway.simulator.result import Result
from headway.simulator.step_time.base import is_decode

MAX_LANES = 300


class LaneLog:
    """StepListener: the steps in which each of the first sequences was served.

    Numbers of steps are rows of `Result.steps`: decisions that ran nothing are not counted.
    `chunks[sequence_id]`: (step, first position, tokens). `preempted[sequence_id]`: steps.
    """

    def __init__(self, max_lanes: int = MAX_LANES) -> None:
        self.max_lanes = max_lanes
        self.num_steps = 0
        self.chunks: dict[int, list[tuple[int, int, int]]] = {}
        self.preempted: dict[int, list[int]] = {}

    def on_step(self, record: StepRecord) -> None:
        for sequence_id, first_position, num_tokens in record.chunks:
            if sequence_id < self.max_lanes:
                row = (self.num_steps, first_position, num_tokens)
                self.chunks.setdefault(sequence_id, []).append(row)
        for preempted in record.preempted:
            if preempted.sequence_id < self.max_lanes:
                self.preempted.setdefault(preempted.sequence_id, []).append(self.num_steps)
        self.num_steps += bool(record.chunks)


class Span(NamedTuple):
    """Steps [start, end) of a lane."""

    lane: int
    start: int
    end: int
    kind: str  # waiting, prefill, computed again, decode, preempted, idle


def spans_of(result: Result, log: LaneLog) -> list[Span]:
    """Every lane in spans of one kind, by sequence and step."""
    starts = result.steps["start_ns"]
    spans: list[Span] = []
    for lane, chunks in sorted(log.chunks.items()):
        arrived = int(np.searchsorted(starts, result.sequences["arrival_ns"][lane], side="left"))
        num_prompt_tokens = int(result.sequences["num_prompt_tokens"][lane])
        lane_spans = _spans(lane, arrived, num_prompt_tokens, chunks, log.preempted.get(lane, []))
        spans += _merged(lane_spans)
    return spans


def _spans(
    lane: int,
    arrived: int,
    num_prompt_tokens: int,
    chunks: list[tuple[int, int, int]],
    preempted: list[int],
) -> Iterator[Span]:
    """One for each chunk and each gap."""
    at, reached, losses = arrived, 0, iter(preempted)
    next_loss = next(losses, None)
    was_lost = False
    for step, first, num_tokens in chunks:
        gap_start, at = at, step + 1
        while next_loss is not None and next_loss <= step:
            was_lost, next_loss = True, next(losses, None)
        if gap_start < step:
            yield Span(lane, gap_start, step, _gap(was_lost, is_first=not reached))
        kind = "decode" if is_decode(first, num_tokens, num_prompt_tokens) else "prefill"
        yield Span(lane, step, at, "computed again" if first < reached else kind)
        reached, was_lost = max(reached, first + num_tokens), False


def _gap(was_lost: bool, *, is_first: bool) -> str:
    if was_lost:
        return "preempted"
    return "waiting" if is_first else "idle"


def _merged(spans: Iterator[Span]) -> Iterator[Span]:
    """Neighbours of a kind as one."""
    last: Span | None = None
    for span in spans:
        if last is not None and last.kind == span.kind and last.end == span.start:
            last = last._replace(end=span.end)
            continue
        if last is not None:
            yield last
        last = span
    if last is not None:
        yield last
