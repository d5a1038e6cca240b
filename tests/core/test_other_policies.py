"""Policies of a test's own: the seams hold for choices that the scheduler has never heard of."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scheduler_world import World, make_request

from headway.core.config import SchedulerConfig
from headway.core.policies import build_policies
from headway.core.policies.ordering import Fcfs


class NewestServedFirst(Fcfs):
    """The victim, the newest, has been placed in the step already when an older one evicts it."""

    def running(self, running, now_ns):
        return list(reversed(list(running)))


@pytest.mark.parametrize("caching", [True, False])
@pytest.mark.parametrize("ahead", [True, False])
def test_a_victim_that_was_placed_is_taken_out_of_the_step_and_its_budget_given_back(
    caching, ahead
):
    config = SchedulerConfig(
        block_size=2,
        max_num_batched_tokens=12,
        enable_prefix_caching=caching,
        reserve_full_isl=False,
    )
    policies = replace(build_policies(config), ordering=NewestServedFirst())
    world = World(config, num_blocks=9, policies=policies)
    for number in range(6):
        world.submit(make_request(f"{number}", [number % 2] * 5, max_tokens=7))
    while world.scheduler.has_unfinished():
        served = world.schedule()
        gone = {event.sequence_id for event in served.preempted}
        assert gone.isdisjoint(chunk.sequence.sequence_id for chunk in served.chunks)
        if not ahead or len(world.scheduler.in_flight) == 2:
            world.complete()
    world.drain()
    assert any(step.preempted for step in world.steps)


def test_every_scheduler_has_policies_of_its_own():
    config = SchedulerConfig()
    assert build_policies(config).ordering is not build_policies(config).ordering


class Noting(Fcfs):
    """Counts the tokens that it is told of."""

    def __init__(self):
        super().__init__()
        self.indexes = []
        self.num_tokens = 0

    def launched(self, step, tokenless, now_ns):
        assert not tokenless
        self.indexes.append(step.index)
        self.num_tokens += step.num_tokens

    def took(self, stride, num_steps):
        self.indexes += range(stride.first_index, stride.first_index + num_steps)
        self.num_tokens += num_steps * len(stride.sequences)


def test_an_ordering_hears_of_every_step_once():
    config = SchedulerConfig(block_size=4)
    ordering = Noting()
    world = World(config, 40, policies=replace(build_policies(config), ordering=ordering))
    for name in range(2):
        world.submit(make_request(f"{name}", [1] * 5, max_tokens=20))
    world.turn()
    stride = world.scheduler.stride(0)
    assert stride is not None
    world.scheduler.take(stride, 9, [[1] * 9] * 2)
    world.schedule()
    assert ordering.indexes == list(range(11))
    assert ordering.num_tokens == (5 + 1) + 9 * 2 + 2  # a block of the second is cached
