"""Eight requests, four slots, one-token prompts: the pass that computes a prompt makes a token."""

from __future__ import annotations

import pytest
from scheduler_drawing import drawing, timeline
from scheduler_world import World, make_request

from headway.core.config import SchedulerConfig

OUTPUTS = (8, 2, 3, 1, 3, 4, 2, 5)


@pytest.mark.parametrize(
    ("unit", "num_steps", "completions"),
    [("step", 9, [8, 2, 3, 1, 4, 6, 5, 9]), ("request", 13, [8] * 4 + [13] * 4)],
)
@pytest.mark.parametrize("kv_policy", ["on-demand", "reserve"])
def test_steps_and_completions_are_those_worked_by_hand(unit, num_steps, completions, kv_policy):
    world = World(SchedulerConfig(max_num_seqs=4, unit=unit, kv_policy=kv_policy), num_blocks=100)
    for number, output in enumerate(OUTPUTS):
        world.submit(make_request(str(number), max_tokens=output))
    ended_at: dict[int, int] = {}
    while world.scheduler.has_unfinished():
        world.turn()
        for sequence_id in world.endings:
            ended_at.setdefault(sequence_id, len(world.steps))
    assert len(world.steps) == num_steps
    assert [ended_at[i] for i in range(8)] == completions
    assert sum(step.num_tokens for step in world.steps) == sum(OUTPUTS) == 28


def test_continuous_drawing():
    assert timeline(
        pool_blocks=100, max_num_seqs=4, prompts=[1] * 8, max_tokens=OUTPUTS
    ) == drawing("""
        A  P d d d d d d d
        B  P d
        C  P d d
        D  P
        E  . P d d
        F  . . P d d d
        G  . . . P d
        H  . . . . P d d d d
    """)


def test_static_drawing():
    assert timeline(
        pool_blocks=100, max_num_seqs=4, prompts=[1] * 8, max_tokens=OUTPUTS, unit="request"
    ) == drawing("""
        A  P d d d d d d d
        B  P d - - - - - -
        C  P d d - - - - -
        D  P - - - - - - -
        E  . . . . . . . . P d d - -
        F  . . . . . . . . P d d d -
        G  . . . . . . . . P d - - -
        H  . . . . . . . . P d d d d
    """)
