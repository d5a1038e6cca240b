"""If anything waits, every step schedules, rejects, or names what blocks."""

from __future__ import annotations

import random

import pytest
from scheduler_world import World, make_request

from headway.core.config import SchedulerConfig
from headway.core.events import Rejected
from headway.core.request import FinishReason
from headway.core.step import Blocker


class Parking:
    """Bars requests by id until they are let go."""

    def __init__(self, *request_ids: str, reason: Blocker = Blocker.GRAMMAR) -> None:
        self.request_ids = set(request_ids)
        self.reason = reason
        self.num_inside = 0

    def bars(self, sequence):
        return self.reason if sequence.request.request_id in self.request_ids else None

    def entered(self, sequence):
        self.num_inside += 1

    def left(self, sequence):
        self.num_inside -= 1


class TenantCap:
    """At most one running sequence of each tenant."""

    def __init__(self) -> None:
        self.inside: list[str] = []

    def bars(self, sequence):
        return Blocker.TENANT if sequence.request.tenant in self.inside else None

    def entered(self, sequence):
        self.inside.append(sequence.request.tenant)

    def left(self, sequence):
        self.inside.remove(sequence.request.tenant)


@pytest.mark.parametrize("kv_policy", ["on-demand", "reserve"])
def test_p08_a_sequence_that_fills_the_pool_alone_ends_with_length(kv_policy):
    config = SchedulerConfig(max_model_len=4096, kv_policy=kv_policy)
    world = World(config, num_blocks=8)
    [answer] = world.submit(make_request("big", [1] * 64, max_tokens=1000))
    if kv_policy == "reserve":
        assert isinstance(answer, Rejected)
        assert "needs 67 blocks" in answer.reason
    world.submit(make_request("next", [2] * 20, max_tokens=5))
    world.drain()
    if kv_policy == "on-demand":
        [end] = world.endings_of("big")
        assert end.reason is FinishReason.LENGTH
        assert "8 blocks" in end.detail
        assert len(world.outputs[0]) == 8 * 16 + 1 - 64
    [end] = world.endings_of("next")
    assert (end.reason, end.detail) == (FinishReason.LENGTH, "")


def test_p13_a_prompt_larger_than_the_pool_is_rejected_with_the_numbers():
    world = World(SchedulerConfig(max_model_len=4096), num_blocks=20)
    [answer] = world.submit(make_request("big", [1] * 1000))
    assert isinstance(answer, Rejected)
    assert "needs 63 blocks of KV cache" in answer.reason
    assert "the pool has 20" in answer.reason
    world.submit(make_request("small", [1] * 10))
    assert world.drain() == 4


def test_p14_parked_requests_take_no_slot_from_others():
    world = World(SchedulerConfig(max_num_seqs=2), 20, [Parking("a", "b")])
    for name in "abc":
        world.submit(make_request(name))
    step = world.turn()
    assert [event.request_id for event in step.admitted] == ["c"]
    assert (step.blocker, step.blocked_sequence_id) == (Blocker.GRAMMAR, 0)
    assert world.scheduler.stats().waiting_reasons == {Blocker.GRAMMAR: 2}
    for _ in range(3):
        world.turn()
    assert world.endings_of("c")
    assert not world.turn().chunks


def test_p15_parked_requests_hold_no_blocks_that_the_head_needs():
    parking = Parking("a", "b", reason=Blocker.ADAPTER)
    world = World(SchedulerConfig(block_size=4), 4, [parking])
    for name in "abc":
        world.submit(make_request(name, [1] * 15, max_tokens=1))
    assert [c.sequence.request.request_id for c in world.turn().chunks] == ["c"]
    assert world.scheduler.pool.num_held == 0
    parking.request_ids.clear()
    world.drain()
    assert parking.num_inside == 0


def test_the_first_that_is_not_barred_is_named_before_those_that_are():
    world = World(SchedulerConfig(max_num_seqs=1), 20, [Parking("a")])
    for name in "abcd":
        world.submit(make_request(name))
    step = world.turn()
    assert (step.blocker, step.blocked_sequence_id) == (Blocker.SLOTS, 2)
    assert world.scheduler.stats().waiting_reasons == {Blocker.GRAMMAR: 1, Blocker.SLOTS: 2}
    assert world.turn().blocked_sequence_id == 0, "slots are full: nobody is asked any more"


def test_a_constraint_is_told_of_preemption_and_end():
    cap = TenantCap()
    world = World(SchedulerConfig(block_size=1, enable_prefix_caching=False), 12, [cap])
    for name in "abcd":
        world.submit(make_request(name, [ord(name)] * 3, max_tokens=6, tenant=name))
        world.submit(make_request(name * 2, [1] * 3, max_tokens=6, tenant=name))
    world.drain()
    assert any(step.preempted for step in world.steps)
    assert cap.inside == []


@pytest.mark.parametrize(
    ("knobs", "num_blocks", "blocker"),
    [
        ({"max_num_seqs": 1}, 20, Blocker.SLOTS),
        ({"block_size": 4}, 3, Blocker.BLOCKS),
        ({"max_num_batched_tokens": 8}, 20, Blocker.BUDGET),
        ({"max_num_seqs": 1, "unit": "request"}, 20, Blocker.SLOTS),
    ],
)
def test_every_wall_is_named(knobs, num_blocks, blocker):
    world = World(SchedulerConfig(**knobs), num_blocks)
    world.submit(make_request("a", [1] * 8))
    world.submit(make_request("b", [2] * 8))
    step = world.turn()
    assert (step.blocker, step.blocked_sequence_id) == (blocker, 1)


def test_a_sealed_static_batch_and_an_eviction_are_named():
    world = World(SchedulerConfig(unit="request"), 20)
    world.submit(make_request("a"))
    world.turn()
    world.submit(make_request("b"))
    assert world.turn().blocker is Blocker.STATIC_BATCH
    world = World(SchedulerConfig(block_size=1, enable_prefix_caching=False), 6)
    for name in "ab":
        world.submit(make_request(name, [3] * 3, max_tokens=4))
    world.turn()
    step = world.turn()
    assert [event.request_id for event in step.preempted] == ["b"]
    assert (step.blocker, step.blocked_sequence_id) == (Blocker.EVICTION, 1)


@pytest.mark.parametrize("unit", ["step", "request"])
def test_p16_a_stalled_and_resumed_executor_leaves_nobody_behind(unit):
    rng = random.Random(16)
    for _ in range(20):
        world = World(SchedulerConfig(block_size=2, unit=unit, max_num_seqs=3), 8)
        for number in range(30):
            if rng.random() < 0.5:
                world.submit(make_request(f"{number}", [1] * rng.randint(1, 9), max_tokens=5))
            stalled = rng.random() < 0.3
            if len(world.scheduler.in_flight) < 2 and not stalled:
                world.schedule()
            if world.scheduler.in_flight and rng.random() < 0.5:
                world.fail() if rng.random() < 0.2 else world.complete()
        world.drain()


def test_p26_running_requests_get_a_token_in_every_step_under_a_flood():
    world = World(SchedulerConfig(max_num_seqs=4, max_num_batched_tokens=32), num_blocks=1000)
    for name in "abc":
        world.submit(make_request(name, max_tokens=500))
    world.turn()
    for number in range(498):
        world.submit(make_request(f"{number}", [5] * 30, max_tokens=3))
        served = [chunk.sequence.sequence_id for chunk in world.turn().chunks]
        assert served[:3] == [0, 1, 2]


def test_running_requests_decode_every_step_when_others_do_not_fit():
    world = World(SchedulerConfig(block_size=4, enable_prefix_caching=False), num_blocks=10)
    world.submit(make_request("a", [1] * 4, max_tokens=30))
    for number in range(29):
        world.submit(make_request(f"b{number}", [2] * 9, max_tokens=9))
        assert next(iter(world.turn().chunks)).sequence.request.request_id == "a"
    world.drain()
