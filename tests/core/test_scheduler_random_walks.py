"""Seeded random walks over every combination of choices: every law, after every move."""

from __future__ import annotations

import itertools
import random

import pytest
from scheduler_world import World, make_request

from headway.core.config import SchedulerConfig
from headway.core.events import Preempted

COMBINATIONS = list(
    itertools.product(
        ("on-demand", "reserve", "predict"), ("step", "request"), ("mixed", "first"), (True, False)
    )
)
STEPS_PER_COMBINATION = 850  # 24 combinations: more than 20,000 steps


@pytest.mark.parametrize(("kv_policy", "unit", "prefill", "caching"), COMBINATIONS)
def test_every_law_holds_on_random_walks(kv_policy, unit, prefill, caching):
    rng = random.Random(f"{kv_policy} {unit} {prefill} {caching}")
    num_steps = num_preemptions = 0
    while num_steps < STEPS_PER_COMBINATION:
        config = random_config(
            rng, kv_policy=kv_policy, unit=unit, prefill=prefill, enable_prefix_caching=caching
        )
        world = World(config, num_blocks=rng.randint(1, 14))
        walk(world, rng, num_moves=80)
        num_steps += len(world.steps)
        num_preemptions += sum(isinstance(event, Preempted) for event in world.events)
    if kv_policy != "predict":  # which needs to hardly ever
        assert (num_preemptions > 0) == (kv_policy == "on-demand")


def random_config(rng: random.Random, **choices) -> SchedulerConfig:
    max_model_len = rng.randint(2, 24)
    whole = rng.random() < 0.2
    may_guard = not whole and choices["unit"] == "step" and choices["prefill"] == "mixed"
    return SchedulerConfig(
        max_num_seqs=rng.randint(1, 5),
        max_num_batched_tokens=max_model_len + rng.randint(0, 9) if whole else rng.randint(1, 20),
        block_size=rng.choice((1, 2, 3, 4)),
        max_model_len=max_model_len,
        enable_chunked_prefill=not whole,
        long_prefill_token_threshold=0 if whole else rng.choice((0, 0, 1, 3)),
        max_num_partial_prefills=0 if whole else rng.choice((0, 2, 4)),
        target_itl_ms=rng.choice((0, 0.001, 0.003)) if may_guard else 0,
        reserve_full_isl=rng.random() < 0.5,
        watermark=rng.choice((0.0, 0.0, 0.1, 0.5)),
        **choices,
    )


def walk(world: World, rng: random.Random, *, num_moves: int) -> None:
    for number in range(num_moves):
        move = rng.random()
        if move < 0.25:
            world.submit(random_request(rng, f"r{number}"))
        elif move < 0.30:
            world.abort(f"r{rng.randint(0, number)}", rng.choice((None, None, 0, 1)))
        elif move < 0.65 and len(world.scheduler.in_flight) < 2:
            world.schedule()
        elif world.scheduler.in_flight:
            if rng.random() < 0.04:
                world.fail()
            else:
                world.complete()
    world.drain()


def random_request(rng: random.Random, request_id: str):
    return make_request(
        request_id,
        [1] * rng.randint(0, 12) + [rng.choice((1, 2)) for _ in range(rng.randint(0, 9))],
        max_tokens=rng.choice((None, 1, 2, 5, 12)),
        n=rng.choice((1, 1, 1, 2, 3)),
        min_tokens=rng.choice((0, 0, 1)),
        stops=rng.random() < 0.4,
        prompt_logprobs=rng.choice((None, None, None, 0)),
        adapter=rng.choice(("", "", "a")),
    )
