"""Two steps in flight: decided before the tokens of the first are known, run in order."""

from __future__ import annotations

import pytest
from scheduler_world import STOP_TOKEN_ID, World, make_request

from headway.core.config import SchedulerConfig
from headway.core.events import Advanced, Retired
from headway.core.scheduler import Scheduler
from headway.core.step import BadStepResultError, StepResult
from headway.drive.invariants import check


def world_of(*, num_blocks: int = 50, **knobs) -> World:
    return World(SchedulerConfig(**{"block_size": 4, **knobs}), num_blocks)


def run_ahead(world: World) -> int:
    """Always keep a second step in flight."""
    num_steps = 0
    while world.scheduler.has_unfinished():
        world.schedule()
        num_steps += 1
        if len(world.scheduler.in_flight) == 2:
            world.complete()
    world.drain()
    return num_steps


def test_a_decode_is_placed_while_its_token_is_in_flight():
    world = world_of()
    world.submit(make_request("a", [1] * 5, max_tokens=3))
    first, second = world.schedule(), world.schedule()
    assert [(c.first_position, c.num_tokens, c.samples) for c in first.chunks] == [(0, 5, True)]
    assert [(c.first_position, c.num_tokens, c.samples) for c in second.chunks] == [(5, 1, True)]
    assert world.scheduler.running_sequences()[0].num_expected_tokens == 5 + 2


def test_what_is_in_flight_is_never_past_the_end():
    world = world_of()
    world.submit(make_request("a", max_tokens=2))
    assert [len(world.schedule().chunks) for _ in range(2)] == [1, 1]
    world.complete()
    assert world.schedule().chunks == ()
    world.drain()


def test_the_later_result_of_an_ended_sequence_is_dropped():
    world = world_of()
    world.submit(make_request("a", max_tokens=9))
    world.schedule()
    world.schedule()
    world.abort("a")
    assert world.complete() == []
    assert world.complete() == []
    world.drain()


def test_the_output_is_the_same_with_one_or_two_steps_in_flight():
    outputs = []
    for runner in (World.drain, run_ahead):
        world = world_of(num_blocks=9, max_num_seqs=3, max_num_batched_tokens=9)
        for number in range(12):
            world.submit(make_request(f"{number}", [number % 3 + 1] * 7, max_tokens=8, stops=True))
        runner(world)
        outputs.append(world.outputs)
    assert outputs[0] == outputs[1]


def test_p05_one_victim_for_each_missing_block_and_progress_in_every_step():
    """All grow in the same step, one block short: eviction must not run through the batch."""
    world = world_of(
        num_blocks=16, max_num_seqs=8, enable_prefix_caching=False, max_num_batched_tokens=64
    )
    for number in range(8):
        world.submit(make_request(f"{number}", [number] * 7, max_tokens=6))
    while world.scheduler.has_unfinished():
        held = {s.sequence_id: len(s.block_ids) for s in world.scheduler.running_sequences()}
        step = world.schedule()
        gained = sum(
            max(0, len(s.block_ids) - held.get(s.sequence_id, 0))
            for s in world.scheduler.running_sequences()
        )
        assert len(step.preempted) <= gained
        assert step.chunks or world.scheduler.in_flight[:-1]
        assert 0 not in [event.sequence_id for event in step.preempted], "the oldest gets on"
        if len(world.scheduler.in_flight) == 2:
            world.complete()
    world.drain()
    assert any(step.preempted for step in world.steps)


def test_a_preempted_sequence_keeps_the_token_that_was_in_flight():
    world = world_of(num_blocks=4, enable_prefix_caching=False)
    world.submit(make_request("a", [1] * 7, max_tokens=4))
    world.submit(make_request("b", [2] * 7, max_tokens=4))
    world.turn()
    world.schedule()
    step = world.schedule()
    assert [event.request_id for event in step.preempted] == ["b"]
    events = world.complete()
    assert [event.request_id for event in events if isinstance(event, Advanced)] == ["a", "b"]
    world.drain()


def test_a_preempted_sequence_may_end_with_the_token_that_was_in_flight():
    config = SchedulerConfig(block_size=4, enable_prefix_caching=False)
    scheduler = Scheduler(config, num_blocks=4)
    for name in "ab":
        scheduler.add(make_request(name, [1] * 7, max_tokens=4, stops=True), 0)
    scheduler.complete(scheduler.schedule(0), StepResult([1, 1]))
    decode = scheduler.schedule(0)
    assert [event.request_id for event in scheduler.schedule(0).preempted] == ["b"]
    events = scheduler.complete(decode, StepResult([1, STOP_TOKEN_ID]))
    assert [event.request_id for event in events if isinstance(event, Retired)] == ["b"]
    assert scheduler.num_waiting == 0
    check(scheduler)


def test_a_third_step_and_a_wrong_order_are_refused():
    world = world_of()
    world.submit(make_request("a", max_tokens=9))
    first, second = world.schedule(), world.schedule()
    with pytest.raises(RuntimeError, match="complete the oldest first"):
        world.scheduler.schedule(0)
    with pytest.raises(RuntimeError, match="not the oldest in flight"):
        world.scheduler.complete(second, StepResult([1]))
    with pytest.raises(BadStepResultError, match="samples 1, got 0"):
        world.scheduler.complete(first, StepResult())
    with pytest.raises(BadStepResultError, match="got 2"):
        world.scheduler.complete(first, StepResult([1, 2]))
    world.drain()
