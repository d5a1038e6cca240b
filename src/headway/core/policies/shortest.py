"""Shortest predicted work first, with ageing."""

from __future__ import annotations

from collections.abc import Iterable

from headway.core.policies.fair import OUTPUT_COST, PROMPT_COST
from headway.core.policies.forecast import LengthForecast
from headway.core.policies.ordering import Ordering
from headway.core.policies.ranked import RankedQueue
from headway.core.sequence import Sequence

USUAL_AGEING = 50  # tokens a second
_NS = 1_000_000_000


class ShortestFirst(Ordering):
    """Least work first, where a second of waiting makes up for `ageing` weighted tokens of it.

    Work is what a sequence has to compute when it queues, without what the prefix cache has, and
    the mean of what it will still say, as far as lengths are known then. It is predicted once, so
    that ranks never change: waiting moves all of them alike. A preempted sequence is ranked anew.

    Of two, one is passed over only by what arrives within (work - the other's work) / ageing
    seconds after it: nobody that arrives work / ageing seconds later goes first. An ageing of 0 is
    no bound. The running are served in order of admission, so that prompts delay no decode.
    """

    def __init__(self, forecast: LengthForecast, ageing: int) -> None:
        self._forecast = forecast
        self._ageing = ageing
        self._queue = RankedQueue()

    def __len__(self) -> int:
        return len(self._queue)

    def enqueue(self, sequence: Sequence, now_ns: int) -> None:
        arrived = self._ageing * sequence.request.arrival_ns
        self._queue.insert(sequence, _NS * self.work(sequence) + arrived)

    def work(self, sequence: Sequence) -> int:
        """Predicted, in weighted tokens, of one that is queued."""
        num_outputs = self._forecast.num_tokens_left(sequence)
        return PROMPT_COST * sequence.num_queued_tokens + OUTPUT_COST * num_outputs

    def remove(self, sequence: Sequence) -> None:
        self._queue.remove(sequence)

    def waiting(self, now_ns: int) -> Iterable[Sequence]:
        return self._queue
