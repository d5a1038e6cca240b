"""The line of tenants under `--scheduling-policy fair`: in turn, however many there are."""

from __future__ import annotations

from itertools import count, islice

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scheduler_world import make_request

from headway.core.config import SchedulerConfig
from headway.core.policies import fair as fair_module
from headway.core.policies.fair import Fair
from headway.core.sequence import Sequence
from headway.core.stride import Stride

NAMES = "abcde"
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("come"), st.sampled_from(NAMES), st.just(0)),
        st.tuples(st.just("go"), st.just(""), st.integers(0, 20)),
        st.tuples(st.just("charge"), st.sampled_from(NAMES), st.integers(1, 5)),
    ),
    max_size=60,
)
_ids = count()


def sequence_of(tenant: str) -> Sequence:
    number = next(_ids)
    request = make_request(f"r{number}", [number] * 4, tenant=tenant)
    return Sequence(sequence_id=number, request=request, index=0, max_num_tokens=20)


def charge(fair: Fair, tenant: str, num_steps: int) -> None:
    fair.took(Stride(0, (sequence_of(tenant),), num_steps, None, None), num_steps)


@pytest.mark.parametrize("few", [0, 1024])
@given(operations=OPERATIONS)
def test_the_line_is_in_order_of_counters_and_joinings(few: int, operations) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fair_module, "_FEW", few)  # 0: who is not needed is forgotten at once
        check_order(operations)


def check_order(operations) -> None:
    fair = Fair(SchedulerConfig(ordering="fair", tenant_weights="a=2"))
    queues: dict[str, list[Sequence]] = {}  # the first to join first
    for what, name, number in operations:
        everybody = [s for queue in queues.values() for s in queue]
        if what == "come":
            queues.setdefault(name, []).append(sequence_of(name))
            fair.enqueue(queues[name][-1], 0)
        elif what == "charge":
            charge(fair, name, number)
        elif everybody:
            gone = everybody[number % len(everybody)]
            fair.remove(gone)
            queues[gone.request.tenant].remove(gone)
            queues = {name: queue for name, queue in queues.items() if queue}
        in_turn = sorted(queues, key=fair.counter_of)  # of equals, who joined first
        expected = [s for name in in_turn for s in queues[name]]
        assert list(fair.waiting(0)) == expected
        assert list(islice(fair.waiting(0), 2)) == expected[:2]


def test_who_is_next_is_found_without_asking_every_tenant(monkeypatch: pytest.MonkeyPatch) -> None:
    fair = Fair(SchedulerConfig(ordering="fair"))
    for number in range(2000):
        fair.enqueue(sequence_of(f"t{number}"), 0)
    num_asked = 0
    turn_of = fair_module._Tenant.turn.fget

    def counting(tenant):
        nonlocal num_asked
        num_asked += 1
        return turn_of(tenant)

    monkeypatch.setattr(fair_module._Tenant, "turn", property(counting))
    for number in range(100):
        charge(fair, f"t{number}", 1)
        first, second = islice(fair.waiting(0), 2)
        assert (first.request.tenant, second.request.tenant) == (f"t{number + 1}", f"t{number + 2}")
        fair.enqueue(sequence_of(f"new{number}"), 0)
    assert num_asked < 1000


def test_who_left_the_line_is_not_kept_in_it() -> None:
    fair = Fair(SchedulerConfig(ordering="fair"))
    fair.enqueue(sequence_of("a"), 0)
    for number in range(2500):
        one = sequence_of("b")
        fair.enqueue(one, 0)
        charge(fair, "b", 1)
        fair.remove(one)
        assert [s.request.tenant for s in fair.waiting(0)] == ["a"], number
    assert len(fair._turns) <= 1100
