"""Several prompts in a step, as drawings: P prefill, d decode, - waits for its next part."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_drawing import drawing, timeline
from scheduler_world import World, make_request

from headway.core.config import SchedulerConfig
from headway.core.events import Admitted
from headway.core.step import Blocker

ROOMY = {"pool_blocks": 400, "block_size": 4, "max_model_len": 800, "max_num_batched_tokens": 8}


def test_without_sharing_a_short_prompt_waits_for_the_whole_of_a_long_one():
    assert timeline(**ROOMY, prompts=[32, 2], arrivals=[0, 1], max_tokens=2) == drawing("""
        A  P P P P d
        B    . . . P d
    """)


def test_a_short_prompt_joins_a_long_one():
    """P23. Of the eight tokens half is B's if it wants it; A gets what B leaves."""
    sharing = {**ROOMY, "max_num_partial_prefills": 2}
    assert timeline(**sharing, prompts=[32, 2], arrivals=[0, 1], max_tokens=2) == drawing("""
        A  P P P P P d
        B    P d
    """)


def chunks_of(world: World, name: str) -> list[int]:
    return [
        chunk.num_tokens
        for step in world.steps
        for chunk in step.chunks
        if chunk.sequence.request.request_id == name and not chunk.is_decode
    ]


def served(prompts, **knobs) -> World:
    config = SchedulerConfig(block_size=4, max_model_len=800, enable_prefix_caching=False, **knobs)
    world = World(config, 400)
    for number, (at, size) in enumerate(prompts):
        while len(world.steps) < at:
            world.turn()
        world.submit(make_request("ABCDEFGH"[number], [number + 1] * size, max_tokens=2))
    world.drain()
    return world


def test_what_the_short_one_leaves_is_for_the_first_in_the_same_step():
    world = served([(0, 32), (1, 2)], max_num_batched_tokens=8, max_num_partial_prefills=2)
    # 8, then 4 held back for B, that takes 2: 2 come back. Then B decodes beside it.
    assert chunks_of(world, "A") == [8, 6, 7, 8, 3]
    assert chunks_of(world, "B") == [2]


def test_the_first_keeps_half():
    world = served([(0, 64), (1, 20)], max_num_batched_tokens=8, max_num_partial_prefills=2)
    assert chunks_of(world, "B") == [4] * 5
    assert chunks_of(world, "A")[1:6] == [4] * 5


def test_prompts_of_one_length_come_one_after_another():
    """P22: not all with the last."""
    world = served([(0, 16)] * 4, max_num_batched_tokens=8, max_num_partial_prefills=8)
    firsts = [
        next(
            s.index
            for s in world.steps
            for c in s.chunks
            if c.samples and c[0].index == 0 and c.sequence.request.request_id == name
        )
        for name in "ABCD"
    ]
    assert len(set(firsts)) == 4


def test_one_of_the_same_length_waits_and_is_told_why_and_nothing_is_wasted():
    config = SchedulerConfig(
        max_num_batched_tokens=8, max_num_partial_prefills=2, max_model_len=800
    )
    world = World(config, 400)
    world.submit(make_request("A", [1] * 400, max_tokens=1))
    world.submit(make_request("B", [2] * 300, max_tokens=1))
    world.turn()
    step = world.turn()
    assert not step.admitted
    assert step.num_tokens == 8  # what was held back has come back to A
    assert world.scheduler.stats().waiting_reasons == {Blocker.PREFILL: 1}
    world.drain()


def test_who_is_passed_over_is_next_when_the_first_has_ended():
    world = served(
        [(0, 80), (1, 79), (1, 4), (1, 4), (1, 4)],
        max_num_batched_tokens=8,
        max_num_partial_prefills=4,
    )
    order = [event.request_id for event in world.events if isinstance(event, Admitted)]
    assert order == ["A", "C", "D", "E", "B"]


def test_the_more_urgent_may_join_whatever_its_length():
    config = SchedulerConfig(
        max_num_batched_tokens=8,
        max_num_partial_prefills=2,
        max_model_len=800,
        ordering="priority",
    )
    world = World(config, 400)
    world.submit(make_request("A", [1] * 100, max_tokens=1, priority=5))
    world.turn()
    world.submit(make_request("U", [2] * 100, max_tokens=1, priority=0))
    assert [event.request_id for event in world.turn().admitted] == ["U"]
    world.drain()
    assert all(size >= 4 for size in chunks_of(world, "U")[:-1])


@settings(max_examples=30, deadline=None)
@given(
    long=st.integers(20, 200),
    shorts=st.lists(st.tuples(st.integers(0, 6), st.integers(1, 60)), max_size=30),
    budget=st.integers(2, 24),
    most=st.integers(2, 8),
)
def test_the_first_takes_at_most_twice_its_time(long, shorts, budget, most):
    """Whoever comes, and however many: half of each step that they share is its own."""
    config = SchedulerConfig(
        max_num_batched_tokens=budget,
        max_num_partial_prefills=most,
        max_model_len=400,
        max_num_seqs=budget,
        enable_prefix_caching=False,
    )
    world = World(config, 300)
    world.submit(make_request("long", [9] * long, max_tokens=1))
    for number, (gap, size) in enumerate(shorts):
        for _ in range(gap):
            world.turn()
        world.submit(make_request(f"{number}", [1] * size, max_tokens=1))
    world.drain()
    assert sum(chunks_of(world, "long")) == long
    for step in world.steps:
        mine = sum(c.num_tokens for c in step.chunks if c.sequence.sequence_id == 0)
        ends = any(c.samples for c in step.chunks if c.sequence.sequence_id == 0)
        single = sum(c.num_tokens == 1 for c in step.chunks)  # placed as decodes are
        assert ends or not mine or 2 * mine >= budget - single


@settings(max_examples=30, deadline=None)
@given(
    prompts=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 200)), min_size=1, max_size=20),
    budget=st.integers(2, 40),
)
def test_each_that_joins_is_at_most_half_as_long_as_what_any_has_left(prompts, budget):
    config = SchedulerConfig(
        max_num_batched_tokens=budget,
        max_num_partial_prefills=8,
        max_model_len=400,
        max_num_seqs=budget,
        enable_prefix_caching=False,
    )
    world = World(config, 300)
    for number, (gap, size) in enumerate(prompts):
        for _ in range(gap):
            world.turn()
        world.submit(make_request(f"{number}", [number] * size, max_tokens=1))
        check_lengths(world)
    while world.scheduler.has_unfinished():
        world.turn()
        check_lengths(world)
    world.drain()


def check_lengths(world: World) -> None:
    """Of all under way, in order of admission, each began with half of what the others had."""
    running = world.scheduler.running_sequences()
    under_way = [s for s in running if s.num_wanted_tokens() > 1]
    for earlier, later in pairwise(under_way):
        assert later.num_prompt_tokens < earlier.num_prompt_tokens
    assert len(under_way) <= 8
