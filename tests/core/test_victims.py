"""`--preemption-victim least-lost`: the fewest tokens to compute again, and nobody starves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_world import World, make_request

from headway.core.blocks import BlockPool
from headway.core.config import SchedulerConfig
from headway.core.policies import build_policies
from headway.core.policies.victim import LeastLost, Newest, VictimRule
from headway.core.sequence import Sequence
from headway.core.step import Blocker


def num_run_again(world: World) -> int:
    """Tokens of all chunks at places of their sequence that an earlier step had computed."""
    reached: dict[int, int] = {}
    again = 0
    for step in world.steps:
        for chunk in step.chunks:
            end = chunk.first_position + chunk.num_tokens
            before = reached.get(chunk.sequence.sequence_id, 0)
            again += max(0, min(end, before) - chunk.first_position)
            reached[chunk.sequence.sequence_id] = max(before, end)
    return again


def billed(world: World) -> int:
    return sum(event.num_recomputed_tokens for step in world.steps for event in step.resumed)


def crowded(num_blocks: int, rule: VictimRule | None = None, **settings) -> World:
    """A rule alone, unless the settings name one: whoever fits gets in, so that memory ends."""
    config = SchedulerConfig(**settings)
    rule = rule or LeastLost(config.block_size)
    return World(config, num_blocks, policies=replace(build_policies(config), victim=rule))


def p01(victim: VictimRule) -> World:
    """64 blocks: two that say a lot, with 16 tokens of prompt, and one with a prompt of 900."""
    world = crowded(
        64, victim, max_num_batched_tokens=300, max_model_len=1024, enable_prefix_caching=False
    )
    world.submit(make_request("old", [1] * 16, max_tokens=80))
    world.submit(make_request("small", [2] * 16, max_tokens=80))
    world.submit(make_request("large", [3] * 900, max_tokens=40))
    world.drain()
    assert billed(world) == num_run_again(world)
    return world


def victims(world: World) -> list[str]:
    return [event.request_id for step in world.steps for event in step.preempted]


def test_p01_the_large_prefill_is_kept_and_the_bill_is_what_was_run_again():
    newest, least = p01(Newest()), p01(LeastLost(16))
    assert victims(newest) == ["large"]
    assert num_run_again(newest) > 900
    assert set(victims(least)) == {"small"}
    assert num_run_again(least) < 100


def test_what_others_go_on_holding_is_not_lost():
    """B shares 8 of its 11 tokens with A, C's 6 are its own: B loses 3 and pays, C would 6."""
    world = crowded(7, block_size=4, max_model_len=64)
    world.submit(make_request("A", [1] * 8 + [2] * 3, max_tokens=20))
    world.turn()
    world.submit(make_request("B", [1] * 8 + [3] * 2, max_tokens=20))
    world.submit(make_request("C", [4] * 5, max_tokens=20))
    while not victims(world):
        world.turn()
    assert victims(world) == ["B"]
    world.drain()


def test_ties_go_to_the_latest_arrival():
    world = crowded(8, block_size=4, max_model_len=64, enable_prefix_caching=False)
    for number, name in enumerate("ABCD"):
        world.submit(make_request(name, [number] * 8, max_tokens=6, arrival_ns=9 - number))
    while not victims(world):
        world.turn()
    # A, the latest to arrive, was the first to be admitted: D is the oldest.
    assert victims(world)[0] == "A"
    world.drain()


@pytest.mark.parametrize(("num_blocks", "entered"), [(8, ["A", "B"]), (7, ["A"])])
def test_who_comes_in_finds_room_for_its_output_and_a_block_for_each_other(num_blocks, entered):
    """A has 3 blocks. B says 8 tokens after 8, which is 4, and A's next is one more."""
    config = SchedulerConfig(block_size=4, max_model_len=64, victim="least-lost")
    world = World(config, num_blocks)
    world.submit(make_request("A", [1] * 9, max_tokens=9))
    world.turn()
    world.submit(make_request("B", [2] * 8, max_tokens=8))
    step = world.turn()
    assert [event.request_id for s in world.steps for event in s.admitted] == entered
    assert step.blocker is (None if "B" in entered else Blocker.BLOCKS)
    world.drain()


def test_nobody_waits_for_room_beside_itself():
    """It may need all of the pool, and nobody else is there."""
    config = SchedulerConfig(block_size=4, max_model_len=64, victim="least-lost")
    world = World(config, 3)
    world.submit(make_request("A", [1] * 12, max_tokens=40))
    assert [event.request_id for event in world.turn().admitted] == ["A"]
    world.drain()


@pytest.mark.parametrize(("policy", "entered"), [("on-demand", 0), ("reserve", 1), ("predict", 1)])
def test_the_room_is_kept_where_blocks_are_given_on_demand(policy, entered):
    config = SchedulerConfig(block_size=4, max_model_len=64, victim="least-lost", kv_policy=policy)
    world = World(config, 8)
    world.submit(make_request("A", [1] * 12, max_tokens=4))
    world.turn()
    world.submit(make_request("B", [2] * 12, max_tokens=4))
    assert len(world.turn().admitted) == entered
    world.drain()


class Watched(LeastLost):
    """Checks each choice against the law in words."""

    def choose(self, running: Mapping[int, Sequence], pool: BlockPool) -> Sequence:
        victim = super().choose(running, pool)
        able = [s for s in running.values() if any(pool.num_holders(b) == 1 for b in s.block_ids)]
        oldest = min(running.values(), key=lambda s: (s.request.arrival_ns, s.sequence_id))
        assert victim in able
        assert victim is not oldest or able == [oldest]
        if victim.num_computed_tokens <= victim.num_reached_tokens:  # again, with no progress
            behind = [s for s in able if s is not oldest]
            assert all(s.num_computed_tokens <= s.num_reached_tokens for s in behind)
            assert victim is (behind or able)[-1]
        return victim


@st.composite
def crowds(draw):
    """A crowded machine: far more tokens than blocks, arrivals in any order of age."""
    num = draw(st.integers(2, 7))
    return [
        (
            draw(st.integers(0, 12)),  # the step it comes in
            [draw(st.sampled_from([1, 1, 2])) for _ in range(draw(st.integers(1, 9)))],
            draw(st.integers(1, 14)),
            draw(st.integers(0, 5)),
        )
        for _ in range(num)
    ]


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    crowd=crowds(),
    num_blocks=st.integers(3, 12),
    block_size=st.sampled_from([1, 2, 4]),
    caching=st.booleans(),
    whole=st.booleans(),
    named=st.sampled_from(["newest", "least-lost"]),
)
def test_the_oldest_gets_on_and_nobody_pays_twice_without_progress_if_another_can(
    crowd, num_blocks, block_size, caching, whole, named
):
    world = crowded(
        num_blocks,
        Watched(block_size),
        block_size=block_size,
        max_model_len=num_blocks * block_size + 1,
        max_num_batched_tokens=8,
        enable_prefix_caching=caching,
        reserve_full_isl=whole,
        victim=named,
    )
    for number in range(13):
        for name, (at, prompt, max_tokens, arrival) in enumerate(crowd):
            if at == number:
                world.submit(
                    make_request(f"{name}", prompt, max_tokens=max_tokens, arrival_ns=arrival)
                )
        world.turn()
    world.drain(max_steps=3_000)
    assert billed(world) == num_run_again(world)
