"""A request's own times: laws over histories of the real scheduler, and one example by hand."""

from __future__ import annotations

import gc
from types import SimpleNamespace

import pytest
from hypothesis import given, settings

from headway.core.config import SchedulerConfig
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
from headway.core.request import FinishReason, Request, SamplingParams
from headway.insight import timeline
from headway.insight.timeline import RequestTimings, Timelines, metrics_body
from tests.insight.histories import CONFIGS, FAILING_STEPS, HAPPENINGS, MS, World

SECOND = 1_000_000_000


def request(name: str, *, n: int = 1) -> Request:
    return Request(
        request_id=name,
        prompt_token_ids=(1, 2, 3),
        sampling=SamplingParams(n=n, max_tokens=8),
        arrival_ns=SECOND,
    )


def waiting(**reasons: int) -> SimpleNamespace:
    return SimpleNamespace(waiting_reasons=reasons)


def test_times_of_one_request_with_two_sequences() -> None:
    folded = Timelines()
    asked = request("r", n=2)
    folded.on_submitted(asked, SECOND)
    folded.on_events([Queued(0, "r", 0), Queued(1, "r", 1), Admitted(0, "r", 0)], SECOND)
    folded.on_stats(waiting(slots=1))
    folded.on_events([Advanced(0, "r", (5,))], 2 * SECOND)
    folded.on_stats(waiting(blocks=1, adapter=3))
    folded.on_events([Admitted(1, "r", 0), Preempted(0, "r", 1, 4, 0, 1, 1)], 3 * SECOND)
    folded.on_events([Resumed(0, "r", 1, 3)], 4 * SECOND)
    folded.on_events([Advanced(0, "r", (6, 7)), Advanced(1, "r", (8,))], 6 * SECOND)
    folded.on_events([Retired(0, "r", FinishReason.STOP)], 6 * SECOND)
    assert folded.take([asked]) == RequestTimings(
        queue_ns=2 * SECOND,
        time_to_first_token_ns=SECOND,
        generation_ns=4 * SECOND,
        mean_itl_ns=2 * SECOND,
        num_output_tokens=4,
        num_preemptions=1,
        num_recomputed_tokens=3,
        num_refunded_tokens=1,
        preempted_ns=3 * SECOND,
        blocked_ns={"slots": SECOND, "blocks": SECOND // 4, "adapter": 3 * SECOND // 4},
    )


def test_the_metrics_object_has_the_known_fields_and_null_where_nothing_is_known() -> None:
    body = metrics_body(RequestTimings())
    assert body == {
        "time_to_first_token_ms": None,
        "generation_time_ms": None,
        "queue_time_ms": None,
        "mean_itl_ms": None,
        "tokens_per_second": None,
        "preemptions": 0,
        "recomputed_tokens": 0,
        "refunded_tokens": 0,
        "preempted_ms": 0.0,
        "blocked_ms": {},
    }
    body = metrics_body(
        RequestTimings(
            queue_ns=0,
            time_to_first_token_ns=1_500_000,
            generation_ns=2 * SECOND,
            num_output_tokens=5,
            blocked_ns={"slots": 2_500_000},
        )
    )
    assert body["queue_time_ms"] == 0.0
    assert body["time_to_first_token_ms"] == 1.5
    assert body["tokens_per_second"] == 2.0
    assert body["blocked_ms"] == {"slots": 2.5}


def test_a_token_alone_has_no_rate() -> None:
    body = metrics_body(RequestTimings(generation_ns=0, num_output_tokens=1))
    assert body["generation_time_ms"] == 0.0
    assert body["tokens_per_second"] is None


@settings(deadline=None)
@given(HAPPENINGS, CONFIGS, FAILING_STEPS)
def test_a_request_waited_no_longer_than_it_was_queued(
    happenings: list, config: SchedulerConfig, failing: set[int]
) -> None:
    folded = Timelines()
    world = World([folded], config, failing)
    world.play(happenings)
    for asked in world.requests:
        timings = folded.take([asked])
        if timings is None or timings.queue_ns is None:
            continue
        assert 0 <= sum(timings.blocked_ns.values()) <= timings.queue_ns
        # All of it is accounted for, but for the step that ran when the request came.
        slowest_step_ns = world.step_ns + NUM_CHUNKS_NS
        assert timings.queue_ns - sum(timings.blocked_ns.values()) <= slowest_step_ns
        if timings.time_to_first_token_ns is not None:
            assert timings.queue_ns is not None
            assert timings.mean_itl_ns is None or timings.mean_itl_ns > 0
    folded.delivered(world.requests, world.clock.now_ns())
    assert len(folded) == 0


NUM_CHUNKS_NS = 2 * MS  # the slowest step of these worlds is slower than an empty one by less


@settings(deadline=None)
@given(HAPPENINGS, CONFIGS, FAILING_STEPS)
def test_counts_are_those_of_the_events(
    happenings: list, config: SchedulerConfig, failing: set[int]
) -> None:
    folded = Timelines()
    world = World([folded], config, failing)
    world.play(happenings)
    for asked in world.requests:
        timings = folded.take([asked])
        if timings is None:
            continue
        mine = [e for _, e in world.events if e.request_id == asked.request_id]
        tokens = [len(e.token_ids) for e in mine if isinstance(e, Advanced)]
        assert timings.num_output_tokens == sum(tokens)
        assert timings.num_preemptions == sum(isinstance(e, Preempted) for e in mine)
        assert timings.num_recomputed_tokens == sum(
            e.num_recomputed_tokens for e in mine if isinstance(e, Resumed)
        )


def endings(number: int, name: str) -> list[Event]:
    """Every way in which a request can end, by turns."""
    cause = list(AbortCause)[number % len(AbortCause)]
    queued: list[Event] = [Queued(number, name, 0)]
    running = [*queued, Admitted(number, name, 0), Advanced(number, name, (1,))]
    ways: list[list[Event]] = [
        [*running, Retired(number, name, FinishReason.STOP)],
        [*running, Retired(number, name, FinishReason.ERROR)],
        [*running, Aborted(number, name, cause=cause)],
        [*running, Aborted(number, name, FinishReason.STOP)],
        [*queued, Aborted(number, name, cause=cause)],
        [Rejected(name, "too long")],
        [Rejected(name, "in use", RefusalCause.ID_IN_USE)],
        [Aborted(-1, name, cause=AbortCause.ENGINE)],
    ]
    return ways[number // 2 % len(ways)]


def test_memory_is_flat_over_requests_that_end_in_all_kinds_of_ways(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(timeline, "MAX_UNDELIVERED", 256)
    folded = Timelines()
    num_objects = []
    for number in range(10_000):
        name = f"r{number}"
        asked = request(name)
        folded.on_submitted(asked, SECOND)
        folded.on_events(endings(number, name), 2 * SECOND)
        if number % 3:
            folded.delivered([asked], 3 * SECOND)
        if number % 5_000 == 4_999:
            num_objects.append(len(gc.get_objects()))
    assert 256 <= len(folded) <= 2 * 256
    assert num_objects[1] <= num_objects[0] + 100


@pytest.mark.parametrize(
    ("cause", "is_kept"),
    [
        (AbortCause.CLIENT, False),
        (AbortCause.ENGINE, False),
        (AbortCause.DEADLINE, True),
        (AbortCause.RUN_TIME, True),
        (AbortCause.QUEUE_TIME, True),
    ],
)
def test_whoever_is_still_there_can_be_told(cause: AbortCause, is_kept: bool) -> None:
    folded = Timelines()
    asked = request("r")
    folded.on_submitted(asked, SECOND)
    folded.on_events([Queued(0, "r", 0), Aborted(0, "r", cause=cause)], 2 * SECOND)
    assert (folded.take([asked]) is not None) is is_kept
    folded.delivered([asked], 3 * SECOND)
    assert len(folded) == 0


def test_an_answer_may_be_delivered_before_the_engine_has_ended_it() -> None:
    folded = Timelines()
    asked = request("r")
    folded.on_submitted(asked, SECOND)
    folded.on_events([Queued(0, "r", 0), Admitted(0, "r", 0), Advanced(0, "r", (1,))], SECOND)
    folded.delivered([asked], 2 * SECOND)
    folded.on_events([Aborted(0, "r", FinishReason.STOP)], 3 * SECOND)
    assert len(folded) == 0


def test_an_id_that_is_used_again_neither_ends_nor_inherits_the_first() -> None:
    folded = Timelines()
    first, again = request("r"), request("r")
    folded.on_submitted(first, SECOND)
    folded.on_submitted(request("r"), SECOND)
    refused = Rejected("r", "in use", RefusalCause.ID_IN_USE)
    folded.on_events([Queued(0, "r", 0), refused, Admitted(0, "r", 0)], 2 * SECOND)
    assert folded.take([first]) is not None
    folded.on_events([Advanced(0, "r", (1,)), Retired(0, "r", FinishReason.STOP)], 3 * SECOND)
    folded.on_submitted(again, 4 * SECOND)
    folded.on_events([Queued(1, "r", 0)], 4 * SECOND)
    assert folded.take([first]) is None
    folded.delivered([first], 4 * SECOND)  # its client was slow to read
    timings = folded.take([again])
    assert timings is not None
    assert timings.num_output_tokens == 0
    folded.on_events([Aborted(1, "r")], 5 * SECOND)
    assert len(folded) == 0


def test_deliveries_are_told_on() -> None:
    told = []
    folded = Timelines(lambda requests, now_ns: told.append((requests, now_ns)))
    both = [request("a"), request("b")]
    folded.delivered(both, 5)
    assert told == [(both, 5)]
