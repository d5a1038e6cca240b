"""`--scheduling-policy edf`: who is due first, who has most to lose, and who is given up."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from scheduler_world import World, make_request

from headway.core.config import SchedulerConfig
from headway.core.events import AbortCause
from headway.core.policies import build_policies
from headway.core.policies.deadline import LONGEST_PASSED_OVER_NS
from headway.core.policies.pace import Pace
from headway.core.request import TimeLimits
from headway.core.step import Blocker, Step

MS = 1_000_000
S = 1000 * MS


def world_of(**knobs) -> World:
    config = SchedulerConfig(
        **{"block_size": 4, "ordering": "edf", "max_num_seqs": 1, "max_model_len": 64, **knobs}
    )
    return World(config, 40, policies=build_policies(config))


def submit(world: World, name: str, due_ns: int | None, *, prompt: int = 2, max_tokens: int = 2):
    limits = TimeLimits(deadline_ns=due_ns)
    world.submit(
        make_request(
            name, [1] * prompt, max_tokens=max_tokens, arrival_ns=world.now_ns, limits=limits
        )
    )


def timed_turn(world: World, span_ns: int) -> Step:
    step = world.schedule()
    world.now_ns += span_ns
    world.complete()
    return step


def admitted(world: World) -> list[str]:
    return [event.request_id for step in world.steps for event in step.admitted]


def test_by_deadline_and_those_without_one_last_by_arrival():
    world = world_of()
    for name, due_ns in (("x", None), ("c", 30 * S), ("a", 10 * S), ("y", None), ("b", 20 * S)):
        submit(world, name, due_ns)
    world.drain()
    assert admitted(world) == ["a", "b", "c", "x", "y"]


def test_one_without_a_deadline_is_not_passed_over_for_ever():
    world = world_of()
    submit(world, "patient", None)
    world.now_ns = LONGEST_PASSED_OVER_NS
    submit(world, "due", world.now_ns + S)
    world.drain()
    assert admitted(world) == ["patient", "due"]


def test_who_cannot_make_it_is_given_up_at_once_with_the_numbers():
    world = world_of()
    submit(world, "running", None, max_tokens=30)
    for _ in range(9):
        timed_turn(world, 100 * MS)
    submit(world, "late", world.now_ns + 50 * MS)
    submit(world, "early", world.now_ns + 10 * S)
    [end] = timed_turn(world, 100 * MS).expired
    assert (end.request_id, end.cause) == ("late", AbortCause.UNREACHABLE)
    assert end.detail == ("its deadline cannot be met: it needs at least 100 ms and has 50 ms")
    world.drain()
    assert "early" in admitted(world)


def test_who_waits_is_given_up_when_it_becomes_too_late_and_not_before():
    world = world_of()
    submit(world, "running", None, max_tokens=60)
    for _ in range(9):
        timed_turn(world, 100 * MS)
    due_ns = world.now_ns + S
    submit(world, "waiting", due_ns)
    last_ns = world.scheduler.next_due_ns()
    assert last_ns is not None
    assert due_ns - 101 * MS <= last_ns <= due_ns - 99 * MS
    world.now_ns = last_ns - 1
    step = world.schedule()
    assert not step.expired
    # Its time is not told, so that nothing is learned from it.
    world._note(world.scheduler.complete(step, world.executor.run(step)))
    world.now_ns = last_ns
    assert [end.request_id for end in world.turn().expired] == ["waiting"]


def test_nobody_is_given_up_while_nothing_is_known():
    world = world_of()
    submit(world, "a", 1)
    assert not world.schedule().expired


def test_under_overload_the_cheap_go_before_the_costly():
    """Ten seconds of work each for the big ones, and all due in eleven: they cannot all be met."""
    world = world_of(max_num_batched_tokens=64)
    submit(world, "running", None, prompt=10, max_tokens=40)
    for _ in range(5):
        timed_turn(world, S)
    due_ns = world.now_ns + 60 * S
    for number in range(4):
        submit(world, f"big {number}", due_ns - number, prompt=20, max_tokens=40)
        submit(world, f"small {number}", due_ns, prompt=2, max_tokens=4)
    while world.scheduler.has_unfinished():
        timed_turn(world, S)
    assert [name[:5] for name in admitted(world)[1:5]] == ["small"] * 4


def test_where_nobody_seems_to_make_it_the_cheap_go_first():
    """No output has ended, so all are thought to be long: deadlines are not what decides."""
    world = world_of(max_num_batched_tokens=64)
    submit(world, "running", None, prompt=10, max_tokens=7)
    for _ in range(5):
        timed_turn(world, S)
    due_ns = world.now_ns + 20 * S
    for number, prompt in enumerate((20, 2, 9)):
        submit(world, f"{prompt}", due_ns + number, prompt=prompt, max_tokens=40)
    while world.scheduler.has_unfinished():
        timed_turn(world, S)
    assert admitted(world) == ["running", "2"]  # it says 40 tokens: the others are given up


@given(st.integers(1, 10**9), st.integers(0, 10**6))
def test_pace_finds_the_line_that_steps_lie_on(start_ns, token_ns):
    pace = Pace()
    for number in range(40):
        num_tokens = (number * 37) % 100
        pace.learn(num_tokens, start_ns + token_ns * num_tokens)
    expected = start_ns + 500 * token_ns
    assert abs(pace.prefill_ns(500) - expected) <= expected // 100 + 500


def test_pace_of_steps_that_are_all_alike_is_what_they_took():
    pace = Pace()
    for _ in range(10):
        pace.learn(100, 5 * MS)
    assert 4 * MS < pace.prefill_ns(100) < 5.1 * MS


def test_a_step_that_the_host_held_up_is_forgotten():
    pace = Pace()
    for _ in range(50):
        pace.learn(0, 10 * MS)
    pace.learn(0, 5 * S)
    for _ in range(300):
        pace.learn(0, 10 * MS)
    assert pace.step_ns < 11 * MS


def test_of_those_who_wait_no_more_nothing_is_kept():
    """Their deadlines are far, behind that of one who waits for long, so nobody comes to them."""
    world = world_of()
    submit(world, "running", None, max_tokens=60)
    world.turn()
    submit(world, "waiting", 100 * S)
    for number in range(600):
        submit(world, f"r{number}", 3600 * S)
        world.abort(f"r{number}")
    assert len(world.scheduler._ordering._hopes) < 200
    world.drain()


def test_who_may_join_a_prompt_is_asked_without_a_trace():
    """What all who run hold is in the ranks; that two of them were compared is not."""
    world = world_of(max_num_seqs=9, max_num_partial_prefills=4, long_prefill_token_threshold=2)
    for number in range(3):
        submit(world, f"r{number}", 100 * S, prompt=2, max_tokens=20)
    submit(world, "long", 100 * S, prompt=30)
    submit(world, "other", 200 * S, prompt=30)
    for _ in range(4):
        step = timed_turn(world, MS)
    assert step.blocker is Blocker.PREFILL
    assert len(world.scheduler._ordering._running) == world.scheduler.num_running == 4
