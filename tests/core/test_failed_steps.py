"""A step that could not be run ends its sequences, and only them; nothing of it is found again."""

from __future__ import annotations

from scheduler_world import World, make_request

from headway.core.config import SchedulerConfig
from headway.core.request import FinishReason

PROMPT = [1, 2, 3, 1, 2, 3, 1, 2, 3, 1]


def world_of(**knobs) -> World:
    return World(SchedulerConfig(**{"block_size": 4, **knobs}), 30)


def test_its_sequences_end_with_an_error_and_the_waiting_go_on():
    world = world_of(max_num_seqs=1)
    world.submit(make_request("a", PROMPT))
    world.submit(make_request("b", PROMPT))
    world.schedule()
    world.fail()
    assert world.scheduler.stats().num_held_blocks == 0
    [end] = world.endings_of("a")
    assert (end.reason, end.detail) == (FinishReason.ERROR, "the executor broke")
    world.drain()
    assert world.endings_of("b")[0].reason is FinishReason.LENGTH


def test_blocks_of_the_failed_step_are_not_found_those_before_it_are():
    world = world_of(max_num_batched_tokens=4)
    world.submit(make_request("a", PROMPT))
    world.turn()
    world.schedule()
    world.fail()
    world.submit(make_request("b", PROMPT))
    assert world.turn().admitted[0].num_cached_tokens == 4
    world.drain()


def test_who_read_its_blocks_one_step_ahead_ends_with_it():
    """b, in the next step, shares a's prompt blocks, which the failed step did not fill; c not."""
    world = world_of()
    world.submit(make_request("a", PROMPT))
    world.schedule()
    world.submit(make_request("b", [*PROMPT, 3]))
    world.submit(make_request("c", [3] * 9))
    ahead = world.schedule()
    assert [event.num_cached_tokens for event in ahead.admitted] == [8, 0]
    world.fail()
    assert {end.request_id for end in world.endings.values()} == {"a", "b"}
    world.drain()
    assert world.endings_of("c")[0].reason is FinishReason.LENGTH


def test_what_the_ended_were_to_compute_one_step_ahead_is_not_found_either():
    world = world_of(max_num_batched_tokens=4)
    world.submit(make_request("a", PROMPT))
    world.schedule()
    world.schedule()
    world.fail()
    world.complete()
    world.submit(make_request("b", PROMPT))
    assert world.turn().admitted[0].num_cached_tokens == 0
    world.drain()


def test_an_empty_step_can_fail_without_harm():
    world = world_of()
    world.schedule()
    assert world.fail() == []
