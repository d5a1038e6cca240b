"""`--scheduling-policy sjf`: least predicted work first, and how long that may keep one waiting."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_world import World, make_request

from headway.core.config import SchedulerConfig
from headway.core.policies import build_policies
from headway.core.policies.forecast import LengthForecast
from headway.core.policies.ranked import RankedQueue
from headway.core.sequence import Sequence

S = 1_000_000_000


def config_of(**knobs) -> SchedulerConfig:
    return SchedulerConfig(**{"block_size": 4, "ordering": "sjf", "max_num_seqs": 1, **knobs})


def admitted(world: World) -> list[str]:
    return [event.request_id for step in world.steps for event in step.admitted]


NUMBERS = itertools.count()


def teach(forecast: LengthForecast, length: int, **fields) -> None:
    """So many outputs of that length that lengths are known."""
    for number in range(200):
        request = make_request(f"{number}", **fields)
        number = -1 - next(NUMBERS)
        sequence = Sequence(sequence_id=number, request=request, index=0, max_num_tokens=999)
        sequence.token_ids += [5] * length
        forecast.entered(sequence)
        forecast.ended(sequence)


def test_the_shorter_prompt_goes_first_and_equals_by_arrival():
    world = World(config_of(), 30)
    for name, size in (("long", 9), ("short", 2), ("middle", 5), ("late", 5)):
        world.submit(make_request(name, [1] * size, max_tokens=2, arrival_ns=len(name)))
    world.drain()
    assert admitted(world) == ["short", "late", "middle", "long"]


def test_outputs_are_as_long_as_those_seen_before_whatever_max_tokens_says():
    config = config_of(max_model_len=100)
    policies = build_policies(config)
    teach(policies.forecast, 2, tenant="terse")
    teach(policies.forecast, 40, tenant="wordy")
    world = World(config, 60, policies=policies)
    for name, tenant, max_tokens in (("a", "wordy", 50), ("b", "terse", 60), ("c", "wordy", 6)):
        world.submit(make_request(name, [1], tenant=tenant, max_tokens=max_tokens))
    world.drain()
    # b is expected to say 2 tokens; of c, which would say 40, max_tokens is the bound.
    assert admitted(world) == ["b", "c", "a"]


def test_a_prompt_that_the_cache_has_is_no_work():
    world = World(config_of(), 60)
    world.submit(make_request("before", [7] * 24, max_tokens=2))
    world.drain()
    world.submit(make_request("new", [1] * 8, max_tokens=2))
    world.submit(make_request("known", [7] * 24, max_tokens=2))
    world.drain()
    assert admitted(world)[1:] == ["known", "new"]


@pytest.mark.parametrize(("after_ns", "order"), [(4 * S - 1, "short"), (4 * S, "long")])
def test_waiting_makes_up_for_work_to_the_nanosecond(after_ns, order):
    """Eight more prompt tokens at two a second are four seconds; of equals the older goes first."""
    world = World(config_of(ageing_tokens_per_s=2), 30)
    world.submit(make_request("long", [1] * 10, max_tokens=2))
    world.submit(make_request("short", [1] * 2, max_tokens=2, arrival_ns=after_ns))
    world.drain()
    assert admitted(world)[0] == order


def test_without_ageing_no_wait_is_long_enough():
    world = World(config_of(ageing_tokens_per_s=0), 30)
    world.submit(make_request("long", [1] * 3, max_tokens=2))
    world.submit(make_request("short", [1] * 2, max_tokens=2, arrival_ns=3600 * S))
    world.drain()
    assert admitted(world) == ["short", "long"]


arrivals = st.lists(
    st.tuples(st.integers(0, 3 * S), st.integers(1, 12), st.sampled_from([None, 1, 4])),
    min_size=1,
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(asked=arrivals, ageing=st.integers(1, 20), max_num_seqs=st.integers(1, 3))
def test_nobody_is_passed_over_by_what_arrives_work_over_ageing_later(asked, ageing, max_num_seqs):
    config = config_of(ageing_tokens_per_s=ageing, max_num_seqs=max_num_seqs, max_model_len=40)
    policies = build_policies(config)
    world = World(config, 60, policies=policies)
    limits: dict[str, int] = {}
    waiting: dict[str, int] = {}
    rest = sorted(asked, key=lambda one: one[0])
    while rest or waiting or world.scheduler.has_unfinished():
        while rest and rest[0][0] <= world.now_ns:
            at_ns, size, max_tokens = rest.pop(0)
            name = f"{len(limits)}"
            request = make_request(name, [1] * size, max_tokens=max_tokens, arrival_ns=at_ns)
            world.submit(request)
            [sequence] = world.scheduler._live.of(name)
            # Rounded up: a rank counts billionths of a token.
            limits[name] = at_ns + -(-S * policies.ordering.work(sequence) // ageing)
            waiting[name] = at_ns
        for event in world.turn().admitted:
            arrived_ns = waiting.pop(event.request_id)
            assert all(arrived_ns <= limits[name] for name in waiting)
        world.now_ns += S // 10


def test_a_preempted_sequence_is_ranked_by_what_is_left_of_it():
    world = World(config_of(max_num_seqs=3, reserve_full_isl=False, max_model_len=60), 9)
    for name in "abc":
        world.submit(make_request(name, [ord(name)] * 6, max_tokens=12))
    world.drain()
    assert any(step.preempted for step in world.steps)
    assert any(step.resumed for step in world.steps)


@given(st.lists(st.tuples(st.integers(-3, 3), st.booleans()), max_size=40))
def test_the_queue_is_a_sorted_list(moves):
    queue, twin = RankedQueue(), {}
    for number, (rank, leaves) in enumerate(moves):
        request = make_request(f"{number}")
        sequence = Sequence(sequence_id=number, request=request, index=0, max_num_tokens=9)
        queue.insert(sequence, rank)
        twin[number] = (rank, number, sequence)
        if leaves:
            gone = min(twin, key=lambda n: (twin[n][0] % 2, n))
            queue.remove(twin.pop(gone)[2])
        assert [s.sequence_id for s in queue] == [n for _, n, _ in sorted(twin.values())]
    assert len(queue) == len(twin)
