"""Which requests the engine has and which of their sequences have not ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headway.core.events import AbortCause, Aborted, Event, Queued, Rejected, Retired
from headway.core.request import Request
from headway.wire import EngineStats


class IdInUseError(Exception):
    """A request of this id has not ended yet; the message says what to do."""

    def __init__(self, request_id: str) -> None:
        super().__init__(
            f"a request with the id {request_id!r} is under way: send another id, or wait for its "
            f"end"
        )


@dataclass(slots=True, eq=False)
class _Entry:
    request: Request
    num_left: int
    num_unqueued: int
    sequence_ids: dict[int, None] = field(default_factory=dict)  # those not ended, in order


class Ledger:
    """A fold. A request stands in it from its submission to the end of its last sequence, whether
    or not its client is still there: until then its id is in use.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {}
        self.num_sequences = 0
        self.num_unqueued_tokens = 0  # prompt tokens of which the engine has not yet spoken

    def __contains__(self, request_id: object) -> bool:
        return request_id in self._entries

    def on_submitted(self, request: Request, now_ns: int) -> None:
        num = request.sampling.n
        self._entries[request.request_id] = _Entry(request, num, num)
        self.num_sequences += num
        self.num_unqueued_tokens += num * request.num_prompt_tokens

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        for event in events:
            entry = self._entries.get(event.request_id)
            if entry is not None:
                self._fold(entry, event)

    def on_stats(self, stats: EngineStats) -> None:
        """Nothing is learned from these."""

    def last_words(self, detail: str) -> list[Event]:
        """The events that an engine that died owes: everything ends, once.

        Sequences that it never spoke of get ids below zero, which no engine gives.
        """
        events: list[Event] = []
        unknown = -1
        for request_id, entry in self._entries.items():
            num = entry.request.sampling.n
            for index in range(num - entry.num_unqueued, num):
                events.append(Queued(unknown, request_id, index))
                events.append(_aborted(unknown, request_id, detail))
                unknown -= 1
            events += [_aborted(i, request_id, detail) for i in entry.sequence_ids]
        return events

    def _fold(self, entry: _Entry, event: Event) -> None:
        match event:
            case Queued(sequence_id):
                entry.sequence_ids[sequence_id] = None
                self._acknowledge(entry, 1)
            case Retired() | Aborted():
                self._end(entry, event.sequence_id)
            case Rejected():
                self._acknowledge(entry, entry.num_unqueued)
                self.num_sequences -= entry.num_left
                del self._entries[event.request_id]

    def _acknowledge(self, entry: _Entry, num_sequences: int) -> None:
        entry.num_unqueued -= num_sequences
        self.num_unqueued_tokens -= num_sequences * entry.request.num_prompt_tokens

    def _end(self, entry: _Entry, sequence_id: int) -> None:
        entry.sequence_ids.pop(sequence_id, None)
        entry.num_left -= 1
        self.num_sequences -= 1
        if not entry.num_left:
            del self._entries[entry.request.request_id]


def _aborted(sequence_id: int, request_id: str, detail: str) -> Aborted:
    return Aborted(sequence_id, request_id, detail=detail, cause=AbortCause.ENGINE)
