"""`--skip-blocked-ms`: a small one may pass one that does not fit, for so long and no longer."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from scheduler_world import World, make_request

from headway.core.config import SchedulerConfig
from headway.core.step import Blocker, Step

MS = 1_000_000


def world_of(num_blocks: int, **knobs) -> World:
    knobs = {"block_size": 4, "enable_prefix_caching": False, "skip_blocked_ms": 10, **knobs}
    return World(SchedulerConfig(**knobs), num_blocks)


def admitted(step: Step) -> list[str]:
    return [event.request_id for event in step.admitted]


def p25(**knobs) -> World:
    """Of 50 blocks 10 are free, the first in the queue needs 40, the next 2."""
    world = world_of(50, **knobs)
    world.submit(make_request("runs", [1] * 159, max_tokens=2))
    world.turn()
    world.submit(make_request("head", [2] * 160, max_tokens=2))
    world.submit(make_request("small", [3] * 8, max_tokens=2))
    return world


def test_p25_two_blocks_of_ten_go_to_one_behind_a_head_that_needs_forty():
    world = p25()
    step = world.turn()
    assert admitted(step) == ["small"]
    assert step.blocker is Blocker.BLOCKS
    assert step.blocked_sequence_id == 1
    world.drain()


def test_off_unless_asked_for():
    world = p25(skip_blocked_ms=0)
    assert admitted(world.turn()) == []
    world.drain()


def late(world: World, name: str) -> list[str]:
    world.submit(make_request(name, [4] * 4, max_tokens=30))
    return admitted(world.turn())


def test_the_head_is_passed_for_its_limit_from_the_first_that_did_and_never_after():
    world = world_of(60)
    world.submit(make_request("runs", [1] * 150, max_tokens=60))
    world.turn()
    world.now_ns = 100 * MS
    world.submit(make_request("head", [2] * 160, max_tokens=2))
    world.turn()
    world.now_ns = 500 * MS  # it has waited for long, but nobody passed it
    assert late(world, "a") == ["a"]
    world.now_ns = 510 * MS - 1
    assert late(world, "b") == ["b"]
    world.now_ns = 510 * MS
    assert late(world, "c") == []
    while "head" not in admitted(world.steps[-1]):
        world.turn()
        assert "c" not in admitted(world.steps[-1]) or "head" in admitted(world.steps[-1])
    world.drain()


def test_one_that_was_preempted_is_not_passed():
    world = world_of(10, reserve_full_isl=False)
    for name in "AB":
        world.submit(make_request(name, [ord(name)] * 16, max_tokens=20))
    while not world.turn().preempted:
        pass
    world.submit(make_request("small", [1] * 2, max_tokens=1))
    while not (step := world.turn()).resumed:
        assert not admitted(step)
    world.drain()


def test_a_whole_prompt_that_the_budget_is_too_short_for_is_passed():
    """Two tokens of 21 are decodes: the head's 20 have to wait, the next one's 18 do not."""
    knobs = {"enable_chunked_prefill": False, "max_num_batched_tokens": 21, "max_model_len": 21}
    for limit_ms, expected in ((10, ["next"]), (0, [])):
        world = world_of(60, skip_blocked_ms=limit_ms, **knobs)
        world.submit(make_request("a", [1] * 3, max_tokens=9))
        world.submit(make_request("b", [1] * 3, max_tokens=9))
        world.turn()
        world.submit(make_request("head", [2] * 20, max_tokens=1))
        world.submit(make_request("next", [2] * 18, max_tokens=1))
        step = world.turn()
        assert admitted(step) == expected
        assert step.blocker is Blocker.BUDGET
        world.drain()


def test_who_would_be_put_out_for_it_does_not_pass_it():
    world = p25(ordering="priority")
    world.submit(make_request("less", [4] * 8, priority=3, max_tokens=2))
    assert admitted(world.turn()) == ["small"]
    world.drain()


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    sizes=st.lists(st.tuples(st.integers(1, 30), st.integers(1, 12)), min_size=2, max_size=25),
    num_blocks=st.integers(9, 14),
    limit_ms=st.integers(0, 6),
)
def test_nobody_is_passed_past_the_limit(sizes, num_blocks, limit_ms):
    """A step a millisecond, a request a step: whom a newcomer passes was not passed before then."""
    world = world_of(num_blocks, skip_blocked_ms=limit_ms, max_num_batched_tokens=64)
    passed_since: dict[str, int] = {}
    order: dict[str, int] = {}
    waiting: list[str] = []
    for number in range(400):
        world.now_ns = number * MS
        if number < len(sizes):
            prompt, max_tokens = sizes[number]
            world.submit(make_request(f"{number}", [number] * prompt, max_tokens=max_tokens))
            waiting.append(f"{number}")
            order[f"{number}"] = number
        for name in admitted(world.turn()):
            waiting.remove(name)
            for other in waiting:
                if order[other] < order[name]:
                    since = passed_since.setdefault(other, number)
                    assert number - since < limit_ms
    assert not waiting
    world.drain()
