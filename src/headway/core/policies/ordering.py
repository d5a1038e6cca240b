"""Who comes first."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from collections.abc import Sequence as SequenceOf
from typing import TYPE_CHECKING, Protocol

from headway.core.policies.ranked import RankedQueue
from headway.core.sequence import Sequence
from headway.core.step import Step
from headway.core.time_limits import Expiry

if TYPE_CHECKING:  # it imports the policies
    from headway.core.stride import Stride


def urgency(sequence: Sequence) -> tuple[int, int, int]:
    """Smaller is more urgent: priority, then arrival. No two sequences have the same."""
    request = sequence.request
    return request.priority, request.arrival_ns, sequence.sequence_id


class Ordering(Protocol):
    """Owns the waiting queue and its order, and the order in which the running are served."""

    def __len__(self) -> int: ...

    def enqueue(self, sequence: Sequence, now_ns: int) -> None:
        """A sequence arrived."""
        ...

    def requeue(self, sequence: Sequence, now_ns: int) -> None:
        """A sequence was preempted."""
        self.enqueue(sequence, now_ns)

    def remove(self, sequence: Sequence) -> None:
        """A waiting sequence was admitted or ended."""
        ...

    def waiting(self, now_ns: int) -> Iterable[Sequence]:
        """The waiting, in the order in which to admit them; not changed while iterated."""
        ...

    def running(self, running: Iterable[Sequence], now_ns: int) -> list[Sequence]:
        """The running, given in order of admission, in the order in which to serve them.
        Not asked while nobody comes or goes, nobody waits, and all decode."""
        return list(running)

    def is_before(self, waiting: Sequence, running: Sequence) -> bool:
        """Whether a waiting one, once it runs, is served before one that runs already."""
        return False

    def entered(self, sequence: Sequence) -> None:
        """The sequence got a slot."""
        return

    def left(self, sequence: Sequence) -> None:
        """The sequence loses its slot: it was preempted or has ended."""
        return

    def launched(self, step: Step, tokenless: SequenceOf[Sequence], now_ns: int) -> None:
        """This was decided: all that run get a token from it but for these. Once for each step."""
        return

    def took(self, stride: Stride, num_steps: int) -> None:
        """So many steps of it were decided and completed; of these `launched` is not told."""
        return

    def num_steps_in_order(self, decoding: SequenceOf[Sequence]) -> int | None:
        """For how many steps the order of the waiting stays as it is now, if nobody comes or goes
        and in each of them these, all that run, decode one token. None: for good.
        """
        return None

    def completed(self, step: Step, now_ns: int) -> None:
        """It ended then, and did not fail."""
        return

    def ran(self, start_ns: int, ends_ns: SequenceOf[int]) -> None:
        """When the first step of a stride began, and when each of those taken ended."""
        return

    @property
    def is_settled(self) -> bool:
        """While nobody comes or goes, `waiting` stays as it is."""
        return True

    def give_up(self, now_ns: int) -> list[Expiry]:
        """The waiting for whom it is too late, and why."""
        return []

    def next_due_ns(self) -> int | None:
        """When `give_up` may have somebody next; None for never."""
        return None


class Fcfs(Ordering):
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


class ByPriority(Ordering):
    """Lower priority values first, ties by arrival; the preempted are first among their equals."""

    def __init__(self) -> None:
        self._queue = RankedQueue()
        self._running = RankedQueue()

    def __len__(self) -> int:
        return len(self._queue)

    def enqueue(self, sequence: Sequence, now_ns: int) -> None:
        priority, arrival_ns, _ = urgency(sequence)
        self._queue.insert(sequence, (priority, 1, arrival_ns))

    def requeue(self, sequence: Sequence, now_ns: int) -> None:
        priority, arrival_ns, _ = urgency(sequence)
        self._queue.insert(sequence, (priority, 0, arrival_ns))

    def remove(self, sequence: Sequence) -> None:
        self._queue.remove(sequence)

    def waiting(self, now_ns: int) -> Iterable[Sequence]:
        return self._queue

    def entered(self, sequence: Sequence) -> None:
        self._running.insert(sequence, urgency(sequence))

    def left(self, sequence: Sequence) -> None:
        self._running.remove(sequence)

    def running(self, running: Iterable[Sequence], now_ns: int) -> list[Sequence]:
        return list(self._running)

    def is_before(self, waiting: Sequence, running: Sequence) -> bool:
        return urgency(waiting) < urgency(running)
