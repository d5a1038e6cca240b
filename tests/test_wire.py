"""What crosses between the processes arrives as it was."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headway.core.events import (
    AbortCause,
    Aborted,
    Admitted,
    Advanced,
    Advances,
    Event,
    Names,
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
    EventRecord,
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
    found = across(events)
    assert found == list(events)
    assert [type(event) for event in found] == [type(event) for event in events]


NAMES = [Names((3, 4), ("b", "c")), Names((3, 5), ("b", "e")), Names((4,), ("c",))]


def across(events: Sequence[Event]) -> list[Event]:
    message = TurnMessage(1, pack_events(events), [], EngineStats(0, 1, 2, 3, 4, 5, 6))
    received = decode_from_engine(encode(message))
    assert isinstance(received, TurnMessage)
    return unpack_events(received.events)


def test_whoever_decodes_together_gets_each_its_own_token() -> None:
    """Turn after turn, with the same names and with others."""
    for turn, place in enumerate((0, 0, 1, 0, 2, 1)):
        names = NAMES[place]
        token_ids = tuple(100 * turn + i for i in names.sequence_ids)
        ended = [Retired(names.sequence_ids[0], "b", FinishReason.STOP, stop_token_id=3)]
        advanced = [
            Advanced(sequence_id, request_id, (100 * turn + sequence_id,))
            for sequence_id, request_id in zip(names.sequence_ids, names.request_ids, strict=True)
        ]
        events = Advances(names, token_ids, list(ended))
        assert [*events] == [*advanced, *ended]
        assert len(events) == len(advanced) + 1
        assert across(events) == [*advanced, *ended]


def test_a_token_without_a_name_is_an_error() -> None:
    record = EventRecord("Advanced", token_ids=(1, 2, 3), names=encode_names())
    with pytest.raises(ValueError, match="zip"):
        unpack_events([record])


def encode_names() -> bytes:
    [record] = pack_events(Advances(NAMES[0], (8, 9), []))
    return record.names
