"""P12: whatever happens to them, finished requests leave nothing behind."""

from __future__ import annotations

import random

import pytest
from scheduler_world import World, make_request

from headway.core.config import SchedulerConfig
from headway.drive.invariants import check_idle


@pytest.mark.parametrize("caching", [True, False])
def test_p12_ten_thousand_short_requests_with_aborts_at_every_phase(caching):
    rng = random.Random(12)
    config = SchedulerConfig(
        max_num_seqs=16,
        max_num_batched_tokens=48,
        block_size=2,
        enable_prefix_caching=caching,
        reserve_full_isl=False,
    )
    world = World(config, num_blocks=40)
    aborted_in: set[str] = set()
    for number in range(10_000):
        prompt = [rng.randint(1, 2) for _ in range(rng.randint(1, 12))]
        request = make_request(f"{number}", prompt, max_tokens=rng.randint(1, 6))
        world.scheduler.add(request, 0)
        if number % 8 == 7:
            step = world.scheduler.schedule(0)
            aborted_in |= _abort_some(world, rng)
            world.scheduler.complete(step, world.executor.run(step))
        while world.scheduler.num_waiting > 8:
            _turn(world)
    while world.scheduler.has_unfinished():
        _turn(world)
    check_idle(world.scheduler)
    assert aborted_in >= {"waiting", "prefilling", "decoding", "preempted"}


def _turn(world: World) -> None:
    """One step without the checks after every move, which would take most of the time."""
    step = world.scheduler.schedule(0)
    world.scheduler.complete(step, world.executor.run(step))


def _abort_some(world: World, rng: random.Random) -> set[str]:
    """Abort a few live requests between decision and outcome; the phases they were in."""
    phases = set()
    scheduler = world.scheduler
    for sequence in scheduler.waiting_sequences() + scheduler.running_sequences():
        if rng.random() < 0.1:
            phase = sequence.status.value
            if phase == "running":
                phase = "decoding" if sequence.num_output_tokens else "prefilling"
            phases.add(phase)
            scheduler.abort(sequence.request.request_id)
    return phases
