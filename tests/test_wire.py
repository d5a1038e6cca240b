"""What crosses between the processes arrives as it was."""

from __future__ import annotations

import pytest

from headway.core.events import (
    AbortCause,
    Aborted,
    Admitted,
    Advanced,
    Event,
    Preempted,
    Queued,
    RefusalCause,
    Rejected,
    Resumed,
    Retired,
)
from headway.core.request import FinishReason
from headway.wire import (
    EngineStats,
    TurnMessage,
    decode_from_engine,
    encode,
    pack_events,
    unpack_events,
)

EVENTS: tuple[Event, ...] = (
    Queued(7, "a", 1),
    Advanced(3, "b", (5,)),
    Advanced(4, "c", ()),
    Rejected("d", "too long", RefusalCause.ID_IN_USE),
    Admitted(7, "a", 16),
    Resumed(8, "e", 0, 40),
    Preempted(8, "e", 9, 40, 0, 3, 2),
    Advanced(3, "b", (6, 2**31 - 1)),
    Retired(3, "b", FinishReason.STOP, stop_token_id=6),
    Retired(4, "c", FinishReason.ERROR, detail="the step failed"),
    Aborted(7, "a", FinishReason.ABORT, "gone", AbortCause.DEADLINE),
)


@pytest.mark.parametrize("events", [(), EVENTS, EVENTS[1:3], EVENTS[::-1]])
def test_events_keep_their_kinds_fields_and_order(events: tuple[Event, ...]) -> None:
    message = TurnMessage(1, pack_events(events), [], EngineStats(0, 1, 2, 3, 4, 5, 6))
    received = decode_from_engine(encode(message))
    assert isinstance(received, TurnMessage)
    found = unpack_events(received.events)
    assert found == list(events)
    assert [type(event) for event in found] == [type(event) for event in events]
