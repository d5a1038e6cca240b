"""Admission by the expected peak: against sums over every step, and in runs."""

from __future__ import annotations

from math import isqrt
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_world import World, make_request
from test_lessons_laws import run

from headway.core.blocks import BlockPool
from headway.core.config import SchedulerConfig
from headway.core.events import Preempted
from headway.core.policies.forecast import ONE, Survival
from headway.core.policies.peak import Peak, Resident, expected_victims
from headway.core.step import Blocker

TO_THEIR_LIMITS = Survival([1 << 20], [ONE, 1])
HALF_END_AT_10 = Survival([10, 30], [ONE, ONE // 2, 1])

lasting = st.builds(
    Resident, st.just(TO_THEIR_LIMITS), st.integers(0, 90), st.integers(1, 60), st.integers(1, 50)
)


@settings(max_examples=200, deadline=None)
@given(
    residents=st.lists(lasting, min_size=1, max_size=9), newcomer=lasting, shared=st.integers(0, 40)
)
def test_with_known_lengths_the_peak_is_exact(residents, newcomer, shared):
    everybody = [*residents, newcomer]
    last = max(r.left for r in residents)

    def peak(until):
        return shared + max(
            sum(r.size + at for r in everybody if r.left > at) for at in range(until)
        )

    held = shared + sum(r.size for r in residents)

    def lack(capacity):
        return Peak(residents, held, block_size=1).lack(newcomer, capacity, 100_000, first=3)

    assert lack(peak(last) - 1) is not None
    assert lack(peak(max(last, newcomer.left))) is None


def test_of_uncertain_lengths_so_many_may_have_to_go():
    """Ten who hold 100 each, of whom half are left in ten steps, with 110 each, and none in thirty.

    After 8 steps all ten hold 108. After 28, the last that is looked at before they end, five hold
    128, give or take a deviation of the square root of 10 x 128 x 128 / 4: 202. So they are above
    1090, 2.2 deviations more than 640, once in 76 times, and by 0.93 tokens on the mean: the 138th
    part of a newcomer, which holds 128 by then.
    """
    newcomer = Resident(HALF_END_AT_10, 0, 1000, 100)
    nine = [newcomer] * 9

    def fits(capacity, risk_in_a_million):
        peak = Peak(nine, 900, block_size=1)
        return peak.lack(newcomer, capacity, risk_in_a_million, first=0) is None

    victims = victims_of(450 / 202.4, 202.4 / 128)
    assert victims == pytest.approx(1 / 76 + 1 / 138, rel=0.01)
    assert fits(10 * 109, round(victims * 1e6 * 1.1))
    assert not fits(10 * 109, round(victims * 1e6 * 0.9))
    assert not fits(10 * 108 - 1, 500_000)


def victims_of(room: float, deviation: float) -> float:
    """`room` in deviations, they in victims: one if it is above, and one for each victim above."""
    law = NormalDist()
    likely = 1 - law.cdf(room)
    return likely + deviation * (law.pdf(room) - room * likely)


@given(room=st.integers(0, 200_000), deviation=st.integers(1, 50_000), size=st.integers(1, 10_000))
def test_who_must_go_are_those_of_the_normal_law(room, deviation, size):
    exact = victims_of(room / deviation, deviation / size)
    least = 1e-4 * (1 + deviation / size)
    assert expected_victims(room, deviation, size) / 1e6 == pytest.approx(exact, 0.25, least)
    assert expected_victims(room + 1, deviation, size) <= expected_victims(room, deviation, size)


def test_who_must_go_are_those_of_sums_drawn():
    """Twenty who hold 100 to 575, each there or not by chance; 200,000 sums of them. Whom one more
    of 200 replaces is counted to the next whole one, so it is a little more than are drawn."""
    rng = np.random.default_rng(7)
    sizes = np.arange(100, 600, 25)
    sums = (rng.random((200_000, 20)) < 0.5) @ sizes
    mean, variance = sizes.sum() / 2, (sizes**2).sum() / 4
    for capacity in (3500, 4200, 4900):
        drawn = np.ceil(np.maximum(sums - capacity, 0) / 200).mean()
        found = expected_victims(round(capacity - mean), isqrt(round(variance)), 200) / 1e6
        assert drawn < found < 1.5 * drawn


def test_one_large_one_needs_no_more_room_than_if_it_stays():
    """Beside ten small ones that are sure to stay for 29 steps, one of 1,000 is gone in ten or
    stays, too. All hold 10 x 110 + 1,000 + a newcomer's 10, and 28 more each at last: 2,446."""
    small = Resident(TO_THEIR_LIMITS, 0, 29, 110)
    large = Resident(HALF_END_AT_10, 0, 30, 1000)
    newcomer = Resident(TO_THEIR_LIMITS, 0, 29, 10)
    peak = Peak([*[small] * 10, large], 2100, block_size=1)
    assert peak.lack(newcomer, 2446, 1, first=0) is None
    assert peak.lack(newcomer, 2445, 1, first=0) == 28


@given(shared=st.integers(0, 20), own=st.integers(0, 20))
def test_shared_blocks_are_counted_from_the_front(shared, own):
    pool = BlockPool(50)
    block_ids = pool.allocate(shared + own)
    pool.share(block_ids[:shared])
    assert pool.num_shared(block_ids) == shared


def timeline(kv_policy: str, num_blocks: int):
    config = SchedulerConfig(
        block_size=4, max_num_batched_tokens=32, max_model_len=200, kv_policy=kv_policy
    )
    world = World(config, num_blocks)
    for number in range(12):
        world.submit(make_request(f"r{number}", [number] * 9, max_tokens=3 + 2 * number))
    world.drain()
    return world


def decisions(world: World):
    return [
        [(c.sequence.sequence_id, c.first_position, c.num_tokens) for c in step.chunks]
        for step in world.steps
    ]


def test_a_pool_that_holds_everybody_is_used_as_on_demand():
    assert decisions(timeline("predict", 110)) == decisions(timeline("on-demand", 110))


def test_a_small_pool_preempts_where_nobody_looks_ahead_only():
    def num_preemptions(kv_policy):
        return sum(isinstance(e, Preempted) for e in timeline(kv_policy, 24).events)

    assert num_preemptions("predict") == 0 < num_preemptions("on-demand")


def test_a_refusal_lasts_until_somebody_is_gone():
    config = SchedulerConfig(block_size=4, max_model_len=200, kv_policy="predict")
    world = World(config, 12)
    for number, most in enumerate((8, 28, 28)):
        world.submit(make_request(f"r{number}", [number] * 8, max_tokens=most))
    first = world.turn()
    assert [event.sequence_id for event in first.admitted] == [0, 1]
    assert first.blocker is Blocker.BLOCKS
    while 1 not in world.endings:
        step = world.turn()
        assert (step.admitted, step.blocker) == ((), Blocker.BLOCKS)
    assert [event.sequence_id for event in world.turn().admitted] == [2]


def test_while_memory_is_short_prompts_come_one_after_another():
    config = SchedulerConfig(
        block_size=4, max_model_len=400, kv_policy="predict", max_num_batched_tokens=64
    )
    world = World(config, 40)
    for number in range(100):
        world.submit(make_request(f"r{number}", [number] * 8, max_tokens=60, stops=True))
    while len(world.endings) < 20:
        world.turn()
    later = [world.turn() for _ in range(40)]
    assert {len(step.admitted) for step in later} == {0, 1}
    blockers = {step.blocker for step in later if step.admitted}
    assert Blocker.BUDGET in blockers
    assert world.scheduler.num_running > 4


@pytest.mark.parametrize("gib", [2, 16])
def test_the_lesson_is_served_with_hardly_a_preemption(gib):
    """On-demand preempts 68 and 38 there, as published; 256 requests."""
    assert run(gib=gib, kv_policy="predict").num_preemptions <= 3


def test_before_anything_was_seen_more_than_one_starts_though_limits_are_beyond_the_pool():
    config = SchedulerConfig(kv_policy="predict", max_model_len=32_768, max_num_seqs=64)
    world = World(config, 1000)
    for number in range(20):
        world.submit(make_request(f"r{number}", [number] * 9, max_tokens=None, stops=True))
    for _ in range(20):
        world.turn()
        assert not world.steps[-1].preempted
    assert len(world.outputs) == 20
    assert not world.scheduler.num_waiting
