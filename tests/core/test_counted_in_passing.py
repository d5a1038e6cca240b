"""What is kept up to date as sequences come, grow and go is what a look at all of them finds."""

from __future__ import annotations

import random
from collections import Counter

import pytest
from scheduler_world import World, make_request

from headway.core.config import SchedulerConfig
from headway.core.policies.fair import OUTPUT_COST
from headway.core.scheduler import Scheduler
from headway.core.step import StepResult

TENANTS = ("", "a", "b")


class Watched(World):
    """After every decision: whom it charged for what, whose blocks are whose, who is a prompt."""

    def __init__(self, config, num_blocks):
        super().__init__(config, num_blocks)
        self.fair = self.scheduler._ordering
        self.launched, self.fair.launched = self.fair.launched, self.watch_charges

    def watch_charges(self, step, tokenless, now_ns):
        before = Counter({tenant: self.fair.counter_of(tenant) for tenant in TENANTS})
        self.launched(step, tokenless, now_ns)
        charged = Counter({tenant: self.fair.counter_of(tenant) for tenant in TENANTS}) - before
        tokens = Counter(c.sequence.request.tenant for c in step.chunks if c.samples)
        assert charged == Counter({name: OUTPUT_COST * tokens[name] for name in tokens})

    def _note(self, events):
        pool, running = self.scheduler.pool, self.scheduler.running_sequences()
        own = Counter()
        for sequence in running:
            num_own = sum(pool.num_holders(block_id) == 1 for block_id in sequence.block_ids)
            own[sequence.request.tenant] += num_own
        if self.config.kv_policy != "reserve":  # under which nobody gives way
            assert +self.fair.shares._num_own == +own
        resident = sum(sequence.num_computed_tokens for sequence in running)
        assert self.scheduler.stats().num_resident_tokens == resident
        prompts = [s for s in running if s.num_wanted_tokens() > 1]
        assert set(prompts) <= set(self.scheduler._prompts())
        return super()._note(events)


@pytest.mark.parametrize("prefill", ["mixed", "first"])
@pytest.mark.parametrize("kv_policy", ["on-demand", "predict", "reserve"])
def test_on_random_walks(kv_policy, prefill):
    rng = random.Random(f"{kv_policy} {prefill}")
    for _ in range(12):
        config = SchedulerConfig(
            max_num_seqs=rng.randint(2, 6),
            max_num_batched_tokens=rng.randint(3, 24),
            block_size=rng.choice((1, 2, 4)),
            max_model_len=24,
            ordering="fair",
            kv_policy=kv_policy,
            prefill=prefill,
            max_num_partial_prefills=rng.choice((0, 3)),
        )
        walk(Watched(config, num_blocks=rng.randint(6, 20)), rng)


def walk(world, rng):
    for number in range(60):
        move = rng.random()
        if move < 0.3:
            prompt = [1] * rng.randint(1, 12) + [rng.choice((1, 2))]
            tenant = rng.choice(TENANTS)
            world.submit(make_request(f"r{number}", prompt, max_tokens=9, tenant=tenant))
        elif move < 0.34:
            world.abort(f"r{rng.randint(0, number)}")
        elif move < 0.67 and len(world.scheduler.in_flight) < 2:
            world.schedule()
        elif world.scheduler.in_flight:
            world.fail() if rng.random() < 0.05 else world.complete()
    world.drain()


@pytest.mark.parametrize(("num_blocks", "least", "most"), [(2000, 0, 0), (196, 1, 3 * 4)])
def test_a_step_asks_once_for_each_tenant_and_only_if_memory_is_short(num_blocks, least, most):
    config = SchedulerConfig(max_num_seqs=80, ordering="fair", max_model_len=200)
    scheduler, asked = Scheduler(config, num_blocks), []
    for number in range(64):
        request = make_request(f"r{number}", [number] * 20, max_tokens=50, tenant=f"{number % 4}")
        scheduler.add(request, 0)
    has = scheduler._precedence._has
    for index in range(20):
        step = scheduler.schedule(0)
        if index == 5:  # from now on nobody comes or goes; all take a block in three steps
            scheduler._precedence._has = lambda *given: asked.append(given) or has(*given)
        result = [1 for c in step.chunks if c.samples]
        scheduler.complete(step, StepResult(result))
    assert scheduler.num_running == 64
    assert least <= len(asked) <= most
