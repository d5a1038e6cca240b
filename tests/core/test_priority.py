"""`--scheduling-policy priority`: lower first, then by arrival; the preempted before equals."""

from __future__ import annotations

import pytest
from scheduler_world import World, make_request

from headway.core.config import SchedulerConfig


def config_of(**knobs) -> SchedulerConfig:
    knobs = {"block_size": 4, "ordering": "priority", "reserve_full_isl": False, **knobs}
    return SchedulerConfig(**knobs)


def admissions(world: World) -> list[str]:
    names = []
    for step in world.steps:
        entered = {event.sequence_id for event in (*step.admitted, *step.resumed)}
        in_order = [chunk.sequence for chunk in step.chunks]
        names += [s.request.request_id for s in in_order if s.sequence_id in entered]
    return names


def preemptions(world: World) -> list[str]:
    return [event.request_id for step in world.steps for event in step.preempted]


def test_lower_values_come_first_and_ties_go_by_arrival():
    world = World(config_of(max_num_seqs=1), 30)
    for name, priority, arrival_ns in (("c", 1, 0), ("b", 0, 9), ("a", 0, 3), ("z", -1, 50)):
        world.submit(make_request(name, priority=priority, arrival_ns=arrival_ns, max_tokens=1))
    world.drain()
    assert admissions(world) == ["z", "a", "b", "c"]


def test_equal_priority_and_arrival_go_by_the_order_of_submission():
    world = World(config_of(max_num_seqs=1), 30)
    for name in "abc":
        world.submit(make_request(name, max_tokens=1))
    world.drain()
    assert admissions(world) == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("knobs", "victim"),
    [({}, "low"), ({"victim": "newest"}, "new"), ({"ordering": "fcfs"}, "new")],
)
def test_the_least_urgent_pays_with_its_blocks_unless_told_otherwise(knobs, victim):
    world = World(config_of(**knobs), 6)
    for name, priority in (("top", 0), ("low", 5), ("new", 1)):
        world.submit(make_request(name, [ord(name[0])] * 5, priority=priority, max_tokens=9))
        world.schedule()
        world.complete()
    world.drain()
    assert preemptions(world)[0] == victim


def test_among_equals_the_latest_arrival_pays():
    world = World(config_of(), 6)
    for name, arrival_ns in (("a", 2), ("b", 9), ("c", 1)):
        prompt = [ord(name)] * 7
        world.submit(make_request(name, prompt, arrival_ns=arrival_ns, max_tokens=4))
    world.drain()
    assert preemptions(world)[0] == "b"


def test_p02_a_preempted_one_comes_before_an_equal_that_never_started_and_finds_its_blocks():
    world = World(config_of(max_num_seqs=2), 6)
    world.submit(make_request("top", [1] * 7, priority=-1, max_tokens=9))
    world.submit(make_request("A", [2] * 9, arrival_ns=1, max_tokens=12))
    world.turn()
    world.submit(make_request("B", [3] * 5, arrival_ns=0, max_tokens=2))
    world.drain()
    assert preemptions(world) == ["A"]
    assert admissions(world) == ["top", "A", "A", "B"]
    [resumed] = [event for step in world.steps for event in step.resumed]
    assert resumed.num_cached_tokens >= 4


def test_a_more_urgent_newcomer_passes_a_preempted_one():
    world = World(config_of(max_num_seqs=2), 6)
    world.submit(make_request("top", [1] * 7, priority=-1, max_tokens=9))
    world.submit(make_request("A", [2] * 9, max_tokens=12))
    while not preemptions(world):
        world.turn()
    world.submit(make_request("urgent", [3] * 2, priority=-5, max_tokens=2))
    world.drain()
    assert admissions(world) == ["top", "A", "urgent", "A"]


def test_a_victim_whose_blocks_are_all_shared_is_passed_over():
    """S needs a block and is the least urgent, but T holds all that S holds: U pays."""
    world = World(config_of(ordering="fcfs", victim="lowest-priority"), 4)
    world.submit(make_request("S", [1] * 8, priority=9, max_tokens=3))
    world.submit(make_request("T", [1] * 9, priority=0, max_tokens=2))
    world.submit(make_request("U", [2] * 3, priority=5, max_tokens=3))
    world.turn()
    [victim] = world.turn().preempted
    assert victim.request_id == "U"
    assert victim.num_free_blocks_after == victim.num_free_blocks_before + 1
    world.drain()


def test_the_most_urgent_is_served_first_when_the_budget_is_short():
    world = World(config_of(max_num_batched_tokens=2), 30)
    world.submit(make_request("late", [1] * 2, priority=3, max_tokens=3))
    world.turn()
    world.submit(make_request("now", [2] * 1, priority=0, max_tokens=5))
    world.turn()
    served = [[c.sequence.request.request_id for c in step.chunks] for step in world.steps]
    assert served == [["late"], ["late", "now"]]
    assert [c.sequence.request.request_id for c in world.turn().chunks] == ["now", "late"]
    world.drain()
