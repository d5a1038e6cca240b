"""The laws notice what is broken, with the numbers."""

from __future__ import annotations

import pytest
from scheduler_world import make_request

from headway.core.config import SchedulerConfig
from headway.core.scheduler import Scheduler
from headway.drive.invariants import InvariantError, check, check_idle


@pytest.fixture
def scheduler():
    scheduler = Scheduler(SchedulerConfig(block_size=4, max_num_seqs=2), num_blocks=8)
    for name in "abc":
        scheduler.add(make_request(name, [1, 2, 3, 4, 5]), 0)
    scheduler.schedule(0)
    check(scheduler)
    return scheduler


def test_a_lost_block_is_noticed(scheduler):
    scheduler.running_sequences()[0].block_ids.pop()
    with pytest.raises(InvariantError, match=r"5 free \+ 2 held != 8 blocks"):
        check(scheduler)


def test_a_block_held_once_too_often_is_noticed(scheduler):
    scheduler.pool.share([0])
    with pytest.raises(InvariantError, match="block 0 counts 3 holders, has 2"):
        check(scheduler)


def test_computed_tokens_beyond_the_blocks_are_noticed(scheduler):
    scheduler.running_sequences()[0].num_computed_tokens = 9
    with pytest.raises(InvariantError, match="9 tokens computed, blocks for 8"):
        check(scheduler)


def test_a_waiting_sequence_with_computed_tokens_is_noticed(scheduler):
    scheduler.waiting_sequences()[0].num_computed_tokens = 1
    with pytest.raises(InvariantError, match="waiting sequence 2 counts 1 computed tokens"):
        check(scheduler)


def test_unfinished_is_not_idle(scheduler):
    with pytest.raises(InvariantError, match="requests are unfinished"):
        check_idle(scheduler)


def test_the_numbers_of_a_step(scheduler):
    step = scheduler.in_flight[0]
    assert (step.num_tokens, step.num_prefill_tokens) == (6, 6)
    stats = scheduler.stats()
    assert (stats.num_running, stats.num_waiting) == (2, 1)
    assert (stats.num_total_blocks, stats.num_held_blocks, stats.num_cached_blocks) == (8, 3, 0)
    assert stats.num_resident_tokens == 10
    assert {blocker.value: n for blocker, n in stats.waiting_reasons.items()} == {"slots": 1}
    assert scheduler.num_steps == 1
