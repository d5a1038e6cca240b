"""Steps that were seen: what was in them and how long they took."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headway.drive.record import StepRecord
from headway.drive.recording import Arrival, EndedSequence, QueuedSequence, Recording
from headway.simulator.step_time.base import PlacedChunk, StepShape, shape_of


@dataclass(frozen=True, slots=True)
class Observations:
    """`shapes` int64 [steps, fields of StepShape], `durations_ns` float64 [steps], all above 0."""

    shapes: npt.NDArray[np.int64]
    durations_ns: npt.NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.durations_ns)

    def where(self, chosen: npt.NDArray[np.bool_]) -> Observations:
        return Observations(self.shapes[chosen], self.durations_ns[chosen])

    @staticmethod
    def of(steps: Iterable[tuple[StepShape, int]]) -> Observations:
        """From shapes and durations in nanoseconds; what took no time is left out."""
        seen = [(shape, duration) for shape, duration in steps if duration > 0]
        return Observations(
            np.array([shape for shape, _ in seen], dtype=np.int64).reshape(-1, len(StepShape())),
            np.array([duration for _, duration in seen], dtype=np.float64),
        )


def observe(recordings: Iterable[Recording]) -> Observations:
    """The steps of recordings. Those that failed, or computed nothing, are left out.

    A step lasts until the next one starts where somebody was left to serve, for what lies between
    two steps is a price of the first; else until its own end. Raises ValueError for entries that do
    not follow from those before them.
    """
    return Observations.of(step for recording in recordings for step in _steps(recording))


class _Live:
    """Who is being served, and how long everybody's prompt is."""

    def __init__(self) -> None:
        self.num_sequences = 0
        self._prompts: dict[str, int] = {}  # of requests
        self._prompt_of: dict[int, int] = {}  # of sequences

    def note(self, entry: object) -> None:
        match entry:
            case Arrival():
                self._prompts[entry.request_id] = entry.num_prompt_tokens
            case QueuedSequence():
                if entry.request_id not in self._prompts:
                    raise ValueError(
                        f"sequence {entry.sequence_id} of the recording is of request "
                        f"{entry.request_id!r}, which did not arrive before it"
                    )
                self.num_sequences += 1
                self._prompt_of[entry.sequence_id] = self._prompts[entry.request_id]
            case EndedSequence():
                self.num_sequences -= 1

    def shape(self, record: StepRecord) -> StepShape:
        sampled = {output.sequence_id for output in record.outputs}
        try:
            return shape_of(
                PlacedChunk(
                    chunk.first_position,
                    chunk.num_tokens,
                    self._prompt_of[chunk.sequence_id],
                    chunk.sequence_id in sampled,
                )
                for chunk in record.chunks
            )
        except KeyError as error:
            raise ValueError(
                f"step {record.index} of the recording serves sequence {error}, which was not "
                f"queued before it"
            ) from None


def _steps(recording: Recording) -> Iterator[tuple[StepShape, int]]:
    live = _Live()
    last: tuple[StepShape, StepRecord] | None = None
    was_idle = True
    for entry in recording.entries:
        if not isinstance(entry, StepRecord):
            live.note(entry)
            was_idle |= live.num_sequences == 0
            continue
        if last is not None:
            yield last[0], (last[1].end_ns if was_idle else entry.start_ns) - last[1].start_ns
        last = (live.shape(entry), entry) if entry.chunks and not entry.error else None
        was_idle = False
    if last is not None:
        yield last[0], last[1].end_ns - last[1].start_ns
