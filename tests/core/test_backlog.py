"""The backlog is what is really left to compute (P35)."""

from __future__ import annotations

import random

import pytest
from scheduler_world import World, make_request

from headway.core.config import SchedulerConfig
from headway.core.sequence import SequenceStatus


def backlog(world: World) -> int:
    return world.scheduler.stats().num_backlog_tokens


def test_p35_chunk_progress_reduces_it_and_decodes_are_none():
    world = World(SchedulerConfig(block_size=4, max_num_batched_tokens=8, max_num_seqs=1), 40)
    world.submit(make_request("a", [1] * 20, max_tokens=3))
    world.submit(make_request("b", [2] * 6, max_tokens=3))
    seen = [backlog(world)]
    for _ in range(5):
        world.turn()
        seen.append(backlog(world))
    assert seen == [26, 18, 10, 6, 6, 6]
    world.drain()
    assert backlog(world) == 0


def test_p35_what_the_prefix_cache_has_is_not_counted():
    world = World(SchedulerConfig(block_size=4, max_num_seqs=1), 40)
    world.submit(make_request("a", [1] * 20, max_tokens=3))
    world.turn()
    world.submit(make_request("b", [1] * 20, max_tokens=3, n=2))
    assert backlog(world) == 2 * 4
    world.drain()


def test_p35_all_n_sequences_count():
    world = World(SchedulerConfig(), 40)
    world.submit(make_request("a", [1] * 20, n=3))
    assert backlog(world) == 60
    world.abort("a", 1)
    assert backlog(world) == 40
    world.abort("a")
    assert backlog(world) == 0


def test_a_preempted_sequence_counts_again_less_what_is_still_cached():
    world = World(SchedulerConfig(block_size=4, enable_prefix_caching=False), 4)
    for name in "ab":
        world.submit(make_request(name, [1] * 7, max_tokens=6))
    while not world.steps or not world.steps[-1].preempted:
        world.turn()
    [preempted] = world.scheduler.waiting_sequences()
    assert preempted.status is SequenceStatus.PREEMPTED
    assert backlog(world) == preempted.num_tokens
    world.drain()


def test_a_token_in_flight_for_a_preempted_sequence_is_one_to_compute_again():
    world = World(SchedulerConfig(block_size=4, enable_prefix_caching=False), 4)
    for name in "ab":
        world.submit(make_request(name, [1] * 7, max_tokens=6))
    world.schedule()
    while not world.schedule().preempted:
        world.complete()
    while world.scheduler.in_flight:
        world.complete()
    [preempted] = world.scheduler.waiting_sequences()
    assert preempted.num_queued_tokens == preempted.num_tokens
    world.drain()


@pytest.mark.parametrize("seed", range(5))
def test_the_incremental_count_is_the_plain_one_step_by_step(seed):
    """Without a prefix cache: known tokens of the waiting, and what is left of prompts."""
    rng = random.Random(seed)
    config = SchedulerConfig(
        block_size=2,
        max_num_seqs=4,
        max_num_batched_tokens=7,
        enable_prefix_caching=False,
        reserve_full_isl=False,
    )
    world = World(config, 14)
    for number in range(60):
        prompt = [rng.randint(1, 2)] * rng.randint(1, 9)
        world.submit(make_request(f"{number}", prompt, max_tokens=rng.randint(1, 9)))
        if rng.random() < 0.2:
            world.abort(f"{rng.randrange(number + 1)}")
        world.turn()
        scheduler = world.scheduler
        plain = sum(s.num_tokens for s in scheduler.waiting_sequences())
        for running in scheduler.running_sequences():
            left = running.num_tokens - running.num_computed_tokens
            plain += left if left > 1 or not running.num_output_tokens else 0
        assert backlog(world) == plain
    world.drain()
    assert any(step.preempted for step in world.steps)
