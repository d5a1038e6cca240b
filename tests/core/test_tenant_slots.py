"""`--max-tenant-seqs`: no walk through a long queue of the barred, and it makes no difference."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_world import World, make_request

from headway.core.config import SchedulerConfig
from headway.core.step import Blocker

requests = st.tuples(
    st.sampled_from("aaaab"),
    st.integers(1, 12),  # of the prompt
    st.integers(1, 9),
    st.integers(0, 1),  # priority
    st.integers(0, 2),  # steps before it comes
)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    crowd=st.lists(requests, min_size=3, max_size=25),
    ordering=st.sampled_from(["fcfs", "priority", "fair", "sjf", "edf"]),
    cap=st.integers(1, 3),
    max_num_seqs=st.integers(2, 6),
    num_partial=st.sampled_from([0, 2]),
    skip_blocked_ms=st.sampled_from([0, 1]),
    num_blocks=st.integers(6, 30),
)
def test_the_queue_is_read_as_if_all_of_it_were(
    crowd, ordering, cap, max_num_seqs, num_partial, skip_blocked_ms, num_blocks
):
    config = SchedulerConfig(
        block_size=4,
        max_model_len=24,
        max_num_batched_tokens=8,
        max_num_seqs=max_num_seqs,
        max_num_partial_prefills=num_partial,
        skip_blocked_ms=skip_blocked_ms,
        ordering=ordering,
        max_tenant_seqs=cap,
    )
    worlds = [World(config, num_blocks) for _ in range(2)]
    worlds[1].scheduler._entrance.tenant_slots = None  # it walks to the end
    for number, (tenant, size, most, priority, num_turns) in enumerate(crowd):
        for world in worlds:
            world.submit(
                make_request(
                    f"r{number}",
                    [number % 5] * size,
                    max_tokens=most,
                    tenant=tenant,
                    priority=priority,
                    arrival_ns=number,
                )
            )
        for _ in range(num_turns):
            reasons = [(world.turn(), world.scheduler.stats().waiting_reasons) for world in worlds]
            assert reasons[0][1] == reasons[1][1]
    for world in worlds:
        world.drain()
    assert worlds[0].events == worlds[1].events
    assert [(s.blocker, s.blocked_sequence_id) for s in worlds[0].steps] == [
        (s.blocker, s.blocked_sequence_id) for s in worlds[1].steps
    ]


def test_of_a_long_queue_of_one_tenant_at_its_cap_one_is_looked_at_and_all_are_counted():
    config = SchedulerConfig(block_size=4, max_num_seqs=8, max_tenant_seqs=2)
    world = World(config, 400)
    for number in range(60):
        world.submit(make_request(f"r{number}", [1] * 4, tenant="a", max_tokens=40))
    world.submit(make_request("other", [2] * 4, tenant="b"))
    step = world.turn()
    assert [event.request_id for event in step.admitted] == ["r0", "r1", "other"]
    asked: list[int] = []
    bars = world.scheduler._entrance.barred
    world.scheduler._entrance.barred = lambda s: asked.append(s.sequence_id) or bars(s)
    step = world.turn()
    assert (asked, step.blocker, step.blocked_sequence_id) == ([], Blocker.TENANT, 2)
    assert world.scheduler.stats().waiting_reasons == {Blocker.TENANT: 58}
