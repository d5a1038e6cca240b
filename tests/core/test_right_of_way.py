"""`--scheduling-policy priority`: the urgent put the less urgent out, for a slot and for blocks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_world import World, evicted, make_request, steps_to_first_token

from headway.core.config import SchedulerConfig
from headway.core.policies import build_policies
from headway.core.policies.victim import LeastLost, LowestPriority, Newest, VictimRule
from headway.core.step import Blocker


def world_of(num_blocks: int, rule: VictimRule | None = None, **knobs) -> World:
    knobs = {"block_size": 4, "ordering": "priority", "enable_prefix_caching": False, **knobs}
    config = SchedulerConfig(**knobs)
    policies = build_policies(config)
    return World(config, num_blocks, policies=replace(policies, victim=rule or policies.victim))


def fill(world: World, num: int, *, prompt: int = 4, max_tokens: int = 40, priority: int = 9):
    for number in range(num):
        prompt_ids = [number % 5] * prompt
        world.submit(
            make_request(f"low{number}", prompt_ids, max_tokens=max_tokens, priority=priority)
        )
    while world.scheduler.num_waiting:
        world.turn()
    world.turn()


@pytest.mark.parametrize("victim", ["auto", "newest", "least-lost"])
def test_p24_among_30_decodes_at_full_slots_an_urgent_one_has_its_token_after_one_step(victim):
    world = world_of(400, max_num_seqs=30, victim=victim)
    fill(world, 30)
    world.submit(make_request("urgent", [6] * 50, priority=0, arrival_ns=99))
    assert steps_to_first_token(world, "urgent") == 1
    assert len(evicted(world.steps[-1])) == 1
    assert len(world.steps[-1].chunks) == 30
    world.drain()


@pytest.mark.parametrize("rule", [LowestPriority(), Newest(), LeastLost(4)])
@pytest.mark.parametrize("num_spare", [0, 3, 11])
def test_blocks_are_freed_as_a_slot_is_and_what_others_grow_by_does_not_take_them(rule, num_spare):
    """30 of 8 to 11 tokens hold 60 to 90 blocks, of which 13 are needed."""
    for num_turns in range(5):
        world = world_of(90 + num_spare, rule, max_num_seqs=99)
        fill(world, 30, prompt=6)
        for _ in range(num_turns):
            world.turn()
        assert not any(step.preempted for step in world.steps)
        world.submit(make_request("urgent", [6] * 50, priority=0))
        assert steps_to_first_token(world, "urgent") <= 2
        world.drain()


def test_many_urgent_ones_come_in_together():
    world = world_of(400, max_num_seqs=10)
    fill(world, 10)
    for number in range(6):
        world.submit(make_request(f"u{number}", [6] * 5, priority=0, max_tokens=9))
    step = world.turn()
    assert len(evicted(step)) == 6
    admitted = [event.request_id for event in step.admitted]
    assert admitted == [f"u{number}" for number in range(6)]
    world.drain()


def test_nobody_pays_if_it_would_not_be_enough():
    """The pool is held by an equal; the one that is outranked has two blocks of the ten needed."""
    world = world_of(14, max_num_seqs=9, watermark=0.0)
    world.submit(make_request("equal", [1] * 40, priority=0, max_tokens=8))
    world.submit(make_request("low", [2] * 4, priority=9, max_tokens=5))
    world.turn()
    world.submit(make_request("urgent", [3] * 40, priority=0, max_tokens=2))
    assert not evicted(world.turn())
    world.drain()
    assert not any(step.preempted for step in world.steps)


def test_equals_are_never_put_out_whenever_they_came():
    world = world_of(400, max_num_seqs=3)
    fill(world, 3, max_tokens=9, priority=0)
    world.submit(make_request("early", [6] * 5, priority=0, arrival_ns=-5))
    world.drain()
    assert not any(step.preempted for step in world.steps)


def test_the_least_urgent_pays_even_if_another_would_be_cheaper():
    world = world_of(400, max_num_seqs=2, victim="least-lost")
    world.submit(make_request("least", [1] * 30, priority=9, max_tokens=30))
    world.turn()
    world.submit(make_request("less", [2] * 3, priority=5, max_tokens=30))
    world.turn()
    world.submit(make_request("urgent", [3] * 3, priority=0))
    assert evicted(world.turn()) == ["least"]
    world.drain()


@pytest.mark.parametrize("knobs", [{"kv_policy": "reserve"}, {"unit": "request"}])
def test_what_is_promised_to_those_that_run_is_kept(knobs):
    world = world_of(400, max_num_seqs=3, max_model_len=64, **knobs)
    fill(world, 3, max_tokens=9)
    world.submit(make_request("urgent", [6] * 5, priority=0))
    world.drain()
    assert not any(step.preempted for step in world.steps)


def test_prompts_of_the_less_urgent_do_not_take_its_tokens():
    """Two prompts of 60 at 16 tokens a step: the urgent one's 10 come first, they share the 6."""
    world = world_of(400, max_num_batched_tokens=16, max_num_seqs=9)
    for name in ("low0", "low1"):
        world.submit(make_request(name, [1] * 60, priority=9))
    world.turn()
    world.submit(make_request("urgent", [2] * 10, priority=0))
    sizes = {c.sequence.request.request_id: c.num_tokens for c in world.turn().chunks}
    assert sizes == {"low0": 6, "urgent": 10}
    world.drain()


def test_nor_does_it_take_those_of_the_more_urgent():
    world = world_of(400, max_num_batched_tokens=16, max_num_seqs=9)
    world.submit(make_request("most", [1] * 30, priority=-1))
    world.submit(make_request("low", [1] * 60, priority=9))
    world.turn()
    world.submit(make_request("urgent", [2] * 10, priority=0))
    sizes = {c.sequence.request.request_id: c.num_tokens for c in world.turn().chunks}
    assert sizes == {"most": 14, "urgent": 2}
    world.drain()


# ---- With a forecast ----


@pytest.mark.parametrize("budget", [4, 8, 20, 64])
def test_one_that_fits_is_not_held_up_by_a_forecast_of_those_that_it_outranks(budget):
    """Both prompts fit, both outputs do not. Whoever is less urgent makes way when blocks end."""
    world = world_of(20, kv_policy="predict", max_num_batched_tokens=budget)
    world.submit(make_request("low", [1] * 40, priority=9, max_tokens=30))
    world.turn()
    world.submit(make_request("urgent", [2] * 20, priority=0, max_tokens=30))
    assert [event.request_id for event in world.turn().admitted] == ["urgent"]
    world.drain(max_steps=200)


def test_nobody_pays_for_one_whom_the_forecast_refuses_even_without_them():
    """An equal will fill the pool, so that the third would not come in if the second were gone."""
    world = world_of(20, kv_policy="predict", max_num_batched_tokens=64)
    world.submit(make_request("equal", [1] * 8, priority=0, max_tokens=60))
    world.submit(make_request("low", [2] * 2, priority=9, max_tokens=10))
    world.turn()
    assert world.scheduler.num_running == 2
    world.submit(make_request("urgent", [3] * 40, priority=0, max_tokens=30))
    for _ in range(8):
        step = world.turn()
        assert (len(step.chunks), step.blocker, step.preempted) == (2, Blocker.BLOCKS, ())
    world.drain()
    assert not any(step.preempted for step in world.steps)


def test_with_a_forecast_too_an_urgent_one_has_its_token_after_one_step():
    world = world_of(110, max_num_seqs=30, kv_policy="predict")
    fill(world, 30, max_tokens=10)
    for name in ("urgent", "second"):
        world.submit(make_request(name, [6] * 40, priority=0, max_tokens=40))
    assert steps_to_first_token(world, "urgent") == 1
    world.drain()


@pytest.mark.parametrize("num_low", [1, 4])
def test_whoever_outranks_all_starts_as_if_alone_however_long_it_may_get(num_low):
    """Its limit is beyond the pool: alone it starts, so it does where all that run make way."""
    world = world_of(20, kv_policy="predict", max_model_len=400)
    fill(world, num_low, max_tokens=20)
    world.submit(make_request("urgent", [6] * 40, priority=0, max_tokens=200, stops=True))
    assert steps_to_first_token(world, "urgent") <= 2
    world.drain()


def test_of_a_long_queue_nobody_is_looked_at_behind_the_first_who_cannot_come_in():
    world = world_of(14, max_num_seqs=9)
    world.submit(make_request("most", [1] * 40, priority=-1, max_tokens=12))
    world.submit(make_request("low", [2] * 4, priority=9, max_tokens=12))
    world.turn()
    for number in range(500):
        world.scheduler.add(make_request(f"u{number}", [3] * 40, priority=0, max_tokens=1), 0)
    asked: list[int] = []
    bars = world.scheduler._entrance.barred
    world.scheduler._entrance.barred = lambda s: asked.append(s.sequence_id) or bars(s)
    world.scheduler.schedule(0)
    assert 0 < len(asked) < 5


def test_what_is_held_for_the_urgent_is_its_own_also_where_prompts_share_a_step():
    """Of 64 tokens 63 are held: the other prompt has the one that is left."""
    world = world_of(400, max_num_batched_tokens=64, max_num_seqs=9, max_num_partial_prefills=4)
    world.submit(make_request("low", [1] * 300, priority=9))
    world.turn()
    world.submit(make_request("urgent", [2] * 63, priority=0))
    sizes = {c.sequence.request.request_id: c.num_tokens for c in world.turn().chunks}
    assert sizes == {"low": 1, "urgent": 63}
    world.drain()


@st.composite
def crowds(draw):
    return [
        (
            draw(st.integers(0, 15)),
            [draw(st.sampled_from([1, 1, 2])) for _ in range(draw(st.integers(1, 9)))],
            draw(st.integers(1, 14)),
            draw(st.integers(-1, 2)),
        )
        for _ in range(draw(st.integers(2, 9)))
    ]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    crowd=crowds(),
    num_blocks=st.integers(3, 12),
    max_num_seqs=st.integers(1, 4),
    victim=st.sampled_from(["auto", "newest", "least-lost"]),
    caching=st.booleans(),
    whole=st.booleans(),
    prefill=st.sampled_from(["mixed", "first"]),
    kv_policy=st.sampled_from(["on-demand", "predict"]),
    num_partial=st.sampled_from([0, 3]),
)
def test_nobody_pays_for_a_less_urgent_one_and_nothing_goes_round_in_circles(
    crowd, num_blocks, max_num_seqs, victim, caching, whole, prefill, kv_policy, num_partial
):
    config = SchedulerConfig(
        block_size=2,
        max_num_seqs=max_num_seqs,
        max_model_len=2 * num_blocks + 1,
        max_num_batched_tokens=8,
        enable_prefix_caching=caching,
        reserve_full_isl=whole,
        ordering="priority",
        victim=victim,
        prefill=prefill,
        kv_policy=kv_policy,
        max_num_partial_prefills=num_partial,
    )
    world = World(config, num_blocks)
    for number in range(16):
        for name, (at, prompt, max_tokens, priority) in enumerate(crowd):
            if at == number:
                world.submit(
                    make_request(f"{name}", prompt, max_tokens=max_tokens, priority=priority)
                )
        world.turn()
    world.drain(max_steps=2_000)
    priority_of = {i: s.request.priority for i, s in world.sequences.items()}
    for step in world.steps:
        for event in step.preempted:
            # One that waited for its place may have ended before it ever ran.
            paid_for = priority_of.get(event.beneficiary_id)
            assert paid_for is None or paid_for <= priority_of[event.sequence_id]
