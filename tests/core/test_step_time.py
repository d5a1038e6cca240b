"""The online model of step times: whole numbers, few steps, whatever the machine."""

from __future__ import annotations

from random import Random

import pytest

from headway.core.policies.step_time import Load, StepTimes, num_attended


def load(decodes: int, attended: int, first: int, tokens: int) -> Load:
    return Load(decodes, attended, tokens, num_attended(first, tokens))


def taught(machine, loads) -> StepTimes:
    times = StepTimes()
    for one in loads:
        times.learn(one, machine(one))
    return times


def mixed_loads(seed: int, count: int) -> list[Load]:
    rng = Random(seed)
    decodes = [rng.randrange(1, 60) for _ in range(count)]
    return [
        load(n, n * rng.randrange(100, 4000), rng.randrange(8000), rng.randrange(1, 600))
        for n in decodes
    ]


def straight(one: Load) -> int:
    """9 ms, 0.2 ms a decode, 60 ns attended, 0.3 ms a prompt token, 90 ns a pair."""
    decodes, attended, tokens, pairs = one
    return 9_000_000 + 200_000 * decodes + 60 * attended + 300_000 * tokens + 90 * pairs


def test_what_tokens_attend_is_counted_one_by_one():
    assert num_attended(0, 3) == 1 + 2 + 3
    assert num_attended(10, 2) == 11 + 12
    assert num_attended(70_000, 1) == 70_001


def test_a_machine_that_is_such_a_sum_is_found():
    times = taught(straight, mixed_loads(1, 400))
    for one in mixed_loads(2, 50):
        assert times.predict_ns(one) == pytest.approx(straight(one), rel=0.02)
    assert times.prefill_ns(0, 100) == pytest.approx(30_000_000 + 90 * 5050, rel=0.1)


def test_one_step_alone_is_blamed_on_its_prompt():
    """Or the next would be taken to cost nothing, and be as large as can be."""
    times = taught(straight, [load(4, 400, 0, 64)])
    assert times.prefill_ns(0, 128) >= 1.9 * straight(load(4, 400, 0, 64))


@pytest.mark.parametrize("slower", [0.25, 4])
def test_it_follows_a_machine_that_changes(slower):
    times = taught(straight, mixed_loads(1, 400))
    for one in mixed_loads(3, 1000):
        times.learn(one, int(slower * straight(one)))
    for one in mixed_loads(4, 20):
        assert times.predict_ns(one) == pytest.approx(slower * straight(one), rel=0.3)


def test_a_step_that_the_host_held_up_hardly_counts():
    times, one = taught(straight, mixed_loads(1, 300)), load(20, 20_000, 1000, 200)
    before = times.predict_ns(one)
    times.learn(one, 60 * 1_000_000_000)
    assert times.predict_ns(one) == pytest.approx(before, rel=0.03)


def test_rates_are_whole_numbers_and_never_below_zero():
    rng = Random(5)
    times = StepTimes()
    for one in mixed_loads(6, 300):
        times.learn(one, rng.randrange(1, 10**9))
        assert all(type(rate) is int and rate >= 0 for rate in times._rates)
