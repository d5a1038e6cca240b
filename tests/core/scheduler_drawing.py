"""Runs as drawings that can be checked by hand: a row for each request, a column for each step.

P prefill   d decode   x preempted   . waiting   - has a slot, computes nothing   (blank) ended
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from textwrap import dedent

from scheduler_world import World, make_request

from headway.core.config import SchedulerConfig
from headway.core.step import Step

NAMES = "ABCDEFGHIJKLMNOP"


def timeline(
    *,
    pool_blocks: int,
    prompts: SequenceOf[int],
    max_tokens: int | SequenceOf[int],
    arrivals: SequenceOf[int] | None = None,
    **knobs,
) -> str:
    """Draw what happens to requests of so many prompt tokens, all different, until all ended.

    `arrivals` are the steps before which they come; all before step 0 if not given.
    """
    world = World(SchedulerConfig(**{"enable_prefix_caching": False, **knobs}), pool_blocks)
    if isinstance(max_tokens, int):
        max_tokens = [max_tokens] * len(prompts)
    arrivals = arrivals or [0] * len(prompts)
    rows: dict[str, list[str]] = {}
    for number in range(200):
        for name, at, size, most in zip(NAMES, arrivals, prompts, max_tokens, strict=False):
            if at == number:
                world.submit(make_request(name, [ord(name)] * size, max_tokens=most))
        if not world.scheduler.has_unfinished() and number > max(arrivals):
            break
        live = set(world.scheduler.live_request_ids())
        parked = {s.request.request_id for s in world.scheduler.parked_sequences()}
        step = world.turn()
        for name in NAMES[: len(prompts)]:
            rows.setdefault(name, []).append(
                " " if name not in live else "-" if name in parked else _mark(world, step, name)
            )
    return draw({name: " ".join(marks) for name, marks in rows.items()})


def draw(rows: dict[str, str]) -> str:
    return "\n".join(f"{name}  {marks}".rstrip() for name, marks in rows.items())


def drawing(text: str) -> str:
    """A drawing as written in a test."""
    return "\n".join(line.rstrip() for line in dedent(text).strip("\n").rstrip().split("\n"))


def _mark(world: World, step: Step, name: str) -> str:
    for chunk in step.chunks:
        if chunk.sequence.request.request_id == name:
            return "d" if chunk.is_decode else "P"
    if any(event.request_id == name for event in step.preempted):
        return "x"
    if any(s.request.request_id == name for s in world.scheduler.running_sequences()):
        return "-"
    return "."
