"""Full blocks are found again by their tokens: in the same step, after an end, after preemption."""

from __future__ import annotations

import pytest
from scheduler_world import World, make_request

from headway.core.config import SchedulerConfig
from headway.core.events import Admitted
from headway.core.step import Blocker

PROMPT = [1, 2, 3, 1, 2, 3, 1, 2, 3, 1]  # two full blocks of four and a half


def world_of(num_blocks: int = 30, **knobs) -> World:
    return World(SchedulerConfig(**{"block_size": 4, **knobs}), num_blocks)


def num_cached(world: World) -> dict[str, int]:
    return {e.request_id: e.num_cached_tokens for s in world.steps for e in s.admitted}


def test_a_finished_request_leaves_its_full_blocks_to_the_next():
    world = world_of()
    world.submit(make_request("a", PROMPT, max_tokens=4))
    world.drain()
    world.submit(make_request("b", PROMPT, max_tokens=4))
    world.drain()
    assert num_cached(world) == {"a": 0, "b": 8}
    assert world.outputs[0] == world.outputs[1]


def test_output_blocks_are_found_by_a_continued_conversation():
    world = world_of()
    world.submit(make_request("a", PROMPT, max_tokens=8))
    world.drain()
    turn = PROMPT + world.outputs[0]
    world.submit(make_request("b", [*turn, 2, 2]))
    world.drain()
    # 17 tokens of a were computed, the 18th only sampled: four full blocks.
    assert num_cached(world)["b"] == 16


def test_two_requests_of_one_step_share_what_the_first_computes():
    world = world_of()
    world.submit(make_request("a", PROMPT))
    world.submit(make_request("b", PROMPT))
    step = world.turn()
    assert num_cached(world) == {"a": 0, "b": 8}
    assert [chunk.num_tokens for chunk in step.chunks] == [10, 2]
    assert world.scheduler.pool.num_held == 4
    world.drain()


def test_the_sequences_of_one_request_share_its_prompt():
    world = world_of()
    world.submit(make_request("a", PROMPT, n=3))
    assert [c.num_tokens for c in world.turn().chunks] == [10, 2, 2]
    world.drain()
    assert len(world.endings_of("a")) == 3


def test_at_least_one_token_is_computed():
    world = world_of()
    for name in "ab":
        world.submit(make_request(name, PROMPT[:8], max_tokens=1))
        world.drain()
    assert num_cached(world)["b"] == 4


@pytest.mark.parametrize("other", [{"adapter": "x"}, {"cache_salt": "x"}])
def test_adapters_and_salts_never_meet(other):
    world = world_of()
    world.submit(make_request("a", PROMPT))
    world.drain()
    world.submit(make_request("b", PROMPT, **other))
    world.submit(make_request("c", PROMPT, adapter="", cache_salt=""))
    world.drain()
    assert num_cached(world) == {"a": 0, "b": 0, "c": 8}


def test_an_adapter_and_a_salt_of_the_same_name_are_not_the_same():
    world = world_of()
    world.submit(make_request("a", PROMPT, adapter="x"))
    world.submit(make_request("b", PROMPT, cache_salt="x"))
    world.turn()
    assert num_cached(world) == {"a": 0, "b": 0}


def test_prompt_logprobs_need_every_row_but_leave_blocks_to_others():
    world = world_of()
    for name, wanted in (("a", None), ("b", 0), ("c", None)):
        world.submit(make_request(name, PROMPT, prompt_logprobs=wanted))
        world.drain()
    assert num_cached(world) == {"a": 0, "b": 0, "c": 8}


def test_switched_off_it_finds_nothing():
    world = world_of(enable_prefix_caching=False)
    for name in "ab":
        world.submit(make_request(name, PROMPT))
        world.drain()
    assert num_cached(world) == {"a": 0, "b": 0}
    assert world.scheduler.stats().num_cached_blocks == 0


def test_recompute_after_preemption_is_a_refund_while_the_blocks_last():
    """b loses 9 computed tokens in two full blocks and a bit; a takes the blank one."""
    world = world_of(num_blocks=6)
    world.submit(make_request("a", [3] * 11, max_tokens=3))
    world.submit(make_request("b", [5] * 8, max_tokens=6))
    world.drain()
    [lost] = [event for step in world.steps for event in step.preempted]
    [back] = [event for step in world.steps for event in step.resumed]
    assert (lost.request_id, lost.num_lost_tokens, lost.beneficiary_id) == ("b", 9, 0)
    assert (lost.num_free_blocks_before, lost.num_free_blocks_after) == (0, 3)
    assert (back.num_cached_tokens, back.num_recomputed_tokens) == (8, 1)


def test_hits_count_as_room_only_once():
    """The cached blocks are among the free ones; sharing them takes them from there."""
    world = world_of(num_blocks=4)
    world.submit(make_request("a", PROMPT, max_tokens=1))
    world.drain()
    world.submit(make_request("b", [9] * 3, max_tokens=5))
    world.turn()
    world.submit(make_request("c", [*PROMPT, 2, 2, 2, 2, 2, 2], max_tokens=1))
    assert world.turn().blocker is Blocker.BLOCKS
    world.drain()


def test_blocks_of_a_prompt_in_the_middle_of_its_chunks_are_found_already():
    world = world_of(max_num_batched_tokens=4)
    world.submit(make_request("a", PROMPT))
    world.turn()
    world.turn()
    assert len(world.scheduler.pool.hashes()) == 2
    assert world.outputs[0] == []
    world.drain()


def test_after_a_reset_nothing_is_found_and_the_running_go_on():
    world = World(SchedulerConfig(block_size=4), 30)
    world.submit(make_request("a", [1] * 9, max_tokens=9))
    world.turn()
    world.scheduler.reset_prefix_cache()
    world.submit(make_request("b", [1] * 9, max_tokens=2))
    world.drain()
    assert [e.num_cached_tokens for e in world.events if isinstance(e, Admitted)] == [0, 0]
    world.submit(make_request("c", [1] * 9, max_tokens=2))
    assert world.turn().admitted[0].num_cached_tokens == 8
    world.drain()


def test_a_reset_waits_for_the_steps_in_flight():
    world = World(SchedulerConfig(), 30)
    world.submit(make_request("a"))
    world.schedule()
    with pytest.raises(RuntimeError, match="1 steps are in flight"):
        world.scheduler.reset_prefix_cache()
    world.drain()
