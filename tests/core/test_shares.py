"""`--scheduling-policy fair`: a flood makes room for a tenant that has less than its share."""

from __future__ import annotations

import pytest
from flooded import flood, sizes, submit, world_of
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_world import World, evicted, make_request, steps_to_first_token

from headway.core.config import SchedulerConfig
from headway.core.policies import shares as shares_module

# ---- Slots and blocks ----


@pytest.mark.parametrize("kv_policy", ["on-demand", "predict"])
@pytest.mark.parametrize(("num_blocks", "num_seqs"), [(80, 8), (40, 99)])
def test_at_full_slots_or_a_full_pool_a_quiet_tenant_has_its_token_after_one_step(
    num_blocks, num_seqs, kv_policy
):
    world = world_of(num_blocks, max_num_seqs=num_seqs, kv_policy=kv_policy)
    flood(world, 20, 6)
    assert world.scheduler.num_waiting
    submit(world, "q", prompt=20, max_tokens=4)
    assert steps_to_first_token(world, "q") == 1
    assert {name[0] for name in evicted(world.steps[-1])} <= {"f"}
    world.drain()


def test_room_is_kept_for_who_comes_back_and_then_it_takes_one_step():
    world = world_of(260, max_num_seqs=32, max_num_batched_tokens=64)
    submit(world, "q0", max_tokens=2)
    flood(world, 50, 16, prompt=2, max_tokens=30)
    assert world.scheduler.num_waiting
    assert world.scheduler.num_running == 31
    assert world.scheduler.pool.num_free >= 16
    submit(world, "q1", prompt=16)
    assert steps_to_first_token(world, "q1") == 1
    world.drain()


@pytest.mark.parametrize("knobs", [{"kv_policy": "reserve"}, {"unit": "request"}])
def test_what_is_promised_to_those_that_run_is_kept(knobs):
    world = world_of(120, max_num_seqs=3, max_model_len=64, **knobs)
    flood(world, 9, 3, max_tokens=9)
    submit(world, "q")
    world.drain()
    assert not any(step.preempted for step in world.steps)


def test_a_tenant_that_is_alone_has_everything():
    world = world_of(260, max_num_seqs=32, max_num_batched_tokens=64)
    flood(world, 40, 1, prompt=16)
    assert sum(sizes(world.steps[0]).values()) == 64
    while world.scheduler.num_running < 32:
        world.turn()
    world.drain()


def test_a_tenant_that_has_gone_is_forgotten_after_so_many_admissions(monkeypatch):
    monkeypatch.setattr(shares_module, "_LATELY", 40)
    world = world_of(260, max_num_seqs=32)
    submit(world, "q0", max_tokens=1)
    flood(world, 190, 3, prompt=1, max_tokens=8)
    assert world.scheduler.num_running == 31
    assert 32 in [(world.turn(), world.scheduler.num_running)[1] for _ in range(15)]
    world.drain()


def test_a_tenant_that_has_gone_is_remembered_while_another_comes_and_goes():
    world = world_of(260, max_num_seqs=32)
    submit(world, "q0", max_tokens=1)
    world.drain()
    for number in range(3):
        submit(world, f"f{number}", max_tokens=2)
        world.drain()
    flood(world, 50, 12, prompt=1, max_tokens=30)
    assert world.scheduler.num_running == 31
    world.drain()


def test_who_asks_for_no_more_than_its_share_has_all_of_it_at_once():
    world = world_of(120, max_num_seqs=8)
    flood(world, 20, 2)
    for number in range(4):
        submit(world, f"q{number}")
    step = world.turn()
    assert [name[0] for name in evicted(step)] == ["f"] * 4
    assert [event.request_id for event in step.admitted] == ["q0", "q1", "q2", "q3"]
    world.drain()


def test_a_long_prompt_within_the_share_is_waited_for_by_nobody_of_its_tenant():
    """It is more than half of the share, which is 60 blocks, and the third is still within it."""
    world = world_of(120, max_num_seqs=99, max_num_batched_tokens=400)
    flood(world, 60, 6)
    for number, prompt in enumerate((20, 150, 20)):
        submit(world, f"q{number}", prompt=prompt, max_tokens=2)
    assert steps_to_first_token(world, "q2") <= 2
    world.drain()


def test_whoever_asks_for_more_than_its_share_has_half_of_it_at_once():
    world = world_of(120, max_num_seqs=8)
    flood(world, 20, 2)
    for number in range(6):
        submit(world, f"q{number}")
    for _ in range(4):
        world.turn()
    running = [s.request.tenant for s in world.scheduler.running_sequences()]
    assert sorted(running) == ["f"] * 6 + ["q"] * 2, "a share is 4 of 8"
    world.drain()


def test_weights_are_shares():
    world = world_of(120, max_num_seqs=8, tenant_weights="q=3")
    flood(world, 20, 2)
    for number in range(7):
        submit(world, f"q{number}")
    for _ in range(4):
        world.turn()
    running = [s.request.tenant for s in world.scheduler.running_sequences()]
    assert sorted(running) == ["f"] * 5 + ["q"] * 3, "a share is 6 of 8"
    world.drain()


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    crowd=st.lists(
        st.tuples(
            st.integers(0, 15), st.integers(1, 9), st.integers(1, 14), st.sampled_from("aaab")
        ),
        min_size=2,
        max_size=14,
    ),
    num_blocks=st.integers(4, 24),
    max_num_seqs=st.integers(1, 6),
    budget=st.sampled_from([3, 8, 30]),
    kept=st.sampled_from([2, 4, 16]),
    victim=st.sampled_from(["auto", "newest", "least-lost"]),
    caching=st.booleans(),
    kv_policy=st.sampled_from(["on-demand", "predict"]),
    num_partial=st.sampled_from([0, 3]),
    prefill=st.sampled_from(["mixed", "first"]),
)
def test_nothing_goes_round_in_circles(
    crowd, num_blocks, max_num_seqs, budget, kept, victim, caching, kv_policy, num_partial, prefill
):
    """Each sequence that is evicted for a waiting one has got past where it was evicted before."""
    config = SchedulerConfig(
        block_size=2,
        max_num_seqs=max_num_seqs,
        max_model_len=2 * num_blocks + 1,
        max_num_batched_tokens=budget,
        ordering="fair",
        victim=victim,
        enable_prefix_caching=caching,
        kv_policy=kv_policy,
        max_num_partial_prefills=num_partial,
        prefill=prefill,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shares_module, "_KEPT", kept)
        world = World(config, num_blocks)
        for number in range(16):
            for name, (at, prompt, max_tokens, tenant) in enumerate(crowd):
                if at == number:
                    ids = [1 + name % 3] * prompt
                    request = make_request(f"{name}", ids, max_tokens=max_tokens, tenant=tenant)
                    world.submit(request)
            world.turn()
        world.drain(max_steps=2_000)
