"""Who did what in each step: the log that lanes are drawn from."""

from __future__ import annotations

from headway.drive.record import StepRecord

MAX_LANES = 300


class LaneLog:
    """StepListener: for each of the first sequences, the steps in which it was served.

    `chunks[sequence_id]`: (step, first position, tokens). `preempted[sequence_id]`: steps.
    """

    def __init__(self, max_lanes: int = MAX_LANES) -> None:
        self.max_lanes = max_lanes
        self.num_steps = 0
        self.chunks: dict[int, list[tuple[int, int, int]]] = {}
        self.preempted: dict[int, list[int]] = {}

    def on_step(self, record: StepRecord) -> None:
        self.num_steps = record.index + 1
        for sequence_id, first_position, num_tokens in record.chunks:
            if sequence_id < self.max_lanes:
                row = (record.index, first_position, num_tokens)
                self.chunks.setdefault(sequence_id, []).append(row)
        for preempted in record.preempted:
            if preempted.sequence_id < self.max_lanes:
                self.preempted.setdefault(preempted.sequence_id, []).append(record.index)
