"""Worlds under fair shares in which one tenant floods: its requests are f0, f1 and so on."""

from __future__ import annotations

from scheduler_world import World, make_request

from headway.core.config import SchedulerConfig
from headway.core.step import Step


def world_of(num_blocks: int, **knobs) -> World:
    knobs = {"block_size": 4, "ordering": "fair", "enable_prefix_caching": False, **knobs}
    return World(SchedulerConfig(**knobs), num_blocks)


def submit(world: World, name: str, *, prompt: int = 4, max_tokens: int = 24) -> None:
    """`f1` is of tenant f."""
    ids = [ord(name[-1]) % 5] * prompt
    world.submit(make_request(name, ids, max_tokens=max_tokens, tenant=name[0]))


def flood(world: World, num: int, num_turns: int, **asked) -> None:
    for number in range(num):
        submit(world, f"f{number}", **asked)
    for _ in range(num_turns):
        world.turn()


def sizes(step: Step) -> dict[str, int]:
    return {c.sequence.request.request_id: c.num_tokens for c in step.chunks}
