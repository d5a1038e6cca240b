"""Who comes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import Protocol

from headway.core.sequence import Sequence


class Ordering(Protocol):
    """Owns the waiting queue and its order, and the order in which the running are served."""

    def __len__(self) -> int: ...

    def enqueue(self, sequence: Sequence, now_ns: int) -> None:
        """A sequence arrived."""
        ...

    def requeue(self, sequence: Sequence, now_ns: int) -> None:
        """A sequence was preempted."""
        ...

    def remove(self, sequence: Sequence) -> None:
        """A waiting sequence was admitted or ended."""
        ...

    def waiting(self, now_ns: int) -> Iterable[Sequence]:
        """The waiting, in the order in which to admit them; not changed while iterated."""
        ...

    def running(self, running: Iterable[Sequence], now_ns: int) -> list[Sequence]:
        """The running, given in order of admission, in the order in which to serve them."""
        ...


class Fcfs:
    """First come, first served; the preempted go to the front."""

    def __init__(self) -> None:
        self._queue: OrderedDict[int, Sequence] = OrderedDict()

    def __len__(self) -> int:
        return len(self._queue)

    def enqueue(self, sequence: Sequence, now_ns: int) -> None:
        self._queue[sequence.sequence_id] = sequence

    def requeue(self, sequence: Sequence, now_ns: int) -> None:
        self._queue[sequence.sequence_id] = sequence
        self._queue.move_to_end(sequence.sequence_id, last=False)

    def remove(self, sequence: Sequence) -> None:
        del self._queue[sequence.sequence_id]

    def waiting(self, now_ns: int) -> Iterable[Sequence]:
        return self._queue.values()

    def running(self, running: Iterable[Sequence], now_ns: int) -> list[Sequence]:
        return list(running)
