"""What ends by the clock: in the queue, while it runs, at a deadline; and nothing else does."""

from __future__ import annotations

import pytest
from scheduler_world import World, make_request

from headway.core.config import SchedulerConfig
from headway.core.events import AbortCause, Aborted
from headway.core.request import FinishReason, TimeLimits
from headway.core.step import Blocker

S = 1_000_000_000


def world_of(**knobs) -> World:
    return World(SchedulerConfig(**{"block_size": 4, **knobs}), 30)


def turn_at(world: World, now_ns: int) -> list[Aborted]:
    world.now_ns = now_ns
    return list(world.turn().expired)


def test_who_waits_too_long_for_a_first_step_is_given_up_with_the_numbers():
    world = world_of(max_num_seqs=1)
    world.submit(make_request("runs", max_tokens=50))
    world.submit(make_request("waits", limits=TimeLimits(max_queue_ns=2 * S)))
    assert turn_at(world, 2 * S - 1) == []
    [end] = turn_at(world, 2 * S)
    assert (end.request_id, end.reason, end.cause) == (
        "waits",
        FinishReason.ABORT,
        AbortCause.QUEUE_TIME,
    )
    assert end.detail == "waited 2 s for its first step; the limit on the queue is 2 s"
    assert turn_at(world, 9 * S) == []
    world.drain()


def test_the_limit_on_the_queue_counts_from_arrival_and_ends_with_the_first_admission():
    world = world_of()
    limits = TimeLimits(max_queue_ns=2 * S)
    world.submit(make_request("a", max_tokens=4, arrival_ns=5 * S, limits=limits))
    assert turn_at(world, 7 * S - 1) == []
    assert turn_at(world, 99 * S) == []
    world.drain()
    assert world.endings_of("a")[0].reason is FinishReason.LENGTH


def test_a_preempted_sequence_is_not_in_the_queue_for_the_first_time():
    world = World(SchedulerConfig(block_size=4, reserve_full_isl=False), 4)
    limits = TimeLimits(max_queue_ns=2 * S)
    for name in "ab":
        world.submit(make_request(name, [1] * 7, max_tokens=6, limits=limits))
    while not world.steps or not world.steps[-1].preempted:
        world.turn()
    assert turn_at(world, 9 * S) == []
    world.drain()
    assert {end.reason for end in world.endings.values()} == {FinishReason.LENGTH}


@pytest.mark.parametrize("preempted", [False, True])
def test_a_run_is_limited_from_its_first_admission_whatever_happens_to_it(preempted):
    """P17 and P38: what never stops by itself is stopped, with or without a client."""
    world = World(SchedulerConfig(block_size=4, reserve_full_isl=False), 5 if preempted else 60)
    world.now_ns = 10 * S
    world.submit(make_request("other", [1] * 7, max_tokens=13))
    limits = TimeLimits(max_run_ns=3 * S)
    world.submit(make_request("endless", [2] * 7, max_tokens=None, limits=limits))
    world.turn()
    for _ in range(6):
        assert turn_at(world, 13 * S - 1) == []
    assert bool([e for step in world.steps for e in step.preempted]) == preempted
    [end] = turn_at(world, 13 * S + S // 2)
    assert (end.request_id, end.cause) == ("endless", AbortCause.RUN_TIME)
    assert end.detail == "ran for 3.5 s; the limit on a run is 3 s"
    assert world.scheduler.next_due_ns() is None
    world.drain()


def test_the_runs_of_one_request_are_limited_each_for_itself():
    world = world_of(max_num_seqs=1)
    limits = TimeLimits(max_run_ns=3 * S)
    world.submit(make_request("a", max_tokens=None, n=2, limits=limits))
    world.turn()
    assert [end.sequence_id for end in turn_at(world, 3 * S)] == [0]
    assert turn_at(world, 6 * S - 1) == []
    assert [end.sequence_id for end in turn_at(world, 6 * S)] == [1]
    assert not world.scheduler.has_unfinished()


def test_a_deadline_ends_the_whole_request_running_and_waiting():
    world = world_of(max_num_seqs=2)
    world.submit(make_request("a", max_tokens=50, n=3, limits=TimeLimits(deadline_ns=4 * S)))
    world.turn()
    ended = turn_at(world, 5 * S)
    assert [end.sequence_id for end in ended] == [0, 1, 2]
    assert {end.cause for end in ended} == {AbortCause.DEADLINE}
    assert ended[0].detail == "its deadline passed 1 s ago, it arrived 5 s ago"
    assert world.scheduler.pool.num_held == 0


def test_the_limit_that_was_due_first_is_the_one_that_is_named():
    world = world_of()
    limits = TimeLimits(max_queue_ns=3 * S, deadline_ns=2 * S)
    world.submit(make_request("a", limits=limits))
    [end] = turn_at(world, 9 * S)
    assert end.cause is AbortCause.DEADLINE


def test_slots_and_blocks_of_the_expired_are_free_in_the_same_step():
    world = world_of(max_num_seqs=1)
    world.submit(make_request("a", max_tokens=None, limits=TimeLimits(max_run_ns=S)))
    world.submit(make_request("b"))
    world.turn()
    world.now_ns = S
    step = world.turn()
    assert [event.request_id for event in step.admitted] == ["b"]
    world.drain()


def test_a_static_batch_that_the_clock_ends_tells_its_endings_in_that_step():
    world = world_of(unit="request")
    world.submit(make_request("short", max_tokens=1))
    world.submit(make_request("long", max_tokens=None, limits=TimeLimits(max_run_ns=S)))
    world.turn()
    world.now_ns = S
    step = world.turn()
    assert [end.request_id for end in step.expired] == ["long"]
    assert [end.request_id for end in step.retired] == ["short"]
    assert not world.scheduler.has_unfinished()


def test_what_a_constraint_bars_for_good_still_expires():
    class Never:
        def bars(self, sequence):
            return Blocker.ADAPTER

        def entered(self, sequence):
            raise AssertionError("barred")

        left = entered

    world = World(SchedulerConfig(), 10, constraints=[Never()])
    world.submit(make_request("a", limits=TimeLimits(max_queue_ns=S)))
    assert turn_at(world, 0) == []
    assert world.scheduler.next_due_ns() == S
    assert [end.request_id for end in turn_at(world, S)] == ["a"]


def test_a_step_in_flight_may_lose_a_sequence_to_the_clock():
    world = world_of()
    world.submit(make_request("a", max_tokens=None, limits=TimeLimits(max_run_ns=S)))
    world.submit(make_request("b", max_tokens=3))
    world.schedule()
    world.now_ns = S
    assert [end.request_id for end in world.schedule().expired] == ["a"]
    world.drain()
    assert world.endings_of("b")[0].reason is FinishReason.LENGTH


def test_ended_requests_with_far_deadlines_leave_no_memory_behind():
    world = world_of()
    for number in range(5000):
        name = f"{number}"
        request = make_request(name, limits=TimeLimits(deadline_ns=3600 * S))
        world.scheduler.add(request, 0)
        world.scheduler.abort(name)
    assert len(world.scheduler._time._heap) < 200
    assert world.scheduler.next_due_ns() is None
