"""What is refused at the door, and what ends a sequence."""

from __future__ import annotations

import pytest
from scheduler_world import STOP_TOKEN_ID, World, make_request

from headway.core.config import SchedulerConfig
from headway.core.events import AbortCause, Aborted, Queued, RefusalCause, Rejected, Retired
from headway.core.policies import build_policies
from headway.core.policies.victim import LeastLost, LowestPriority, Newest
from headway.core.request import FinishReason
from headway.core.scheduler import Scheduler
from headway.core.step import StepResult


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        (make_request("a", []), "the prompt is empty"),
        (make_request("a", [1] * 32), "32 tokens and max_model_len is 32"),
        (make_request("a", [-1]), "must be in [0, 2147483647]"),
        (make_request("a", [2**31]), "must be in [0, 2147483647]"),
        (make_request("a", [1] * 21), "needs 6 blocks of KV cache (21 tokens in blocks of 4)"),
    ],
)
def test_what_can_never_be_served_is_rejected_with_the_numbers(request_, sentence):
    scheduler = Scheduler(SchedulerConfig(block_size=4, max_model_len=32), num_blocks=5)
    [answer] = scheduler.add(request_, 0)
    assert isinstance(answer, Rejected)
    assert sentence in answer.reason
    assert answer.cause is RefusalCause.NEVER_FITS
    assert not scheduler.has_unfinished()


def test_a_live_request_id_is_refused_and_a_finished_one_is_free_again():
    world = World(SchedulerConfig(), 10)
    world.submit(make_request("a"))
    [answer] = world.submit(make_request("a"))
    assert isinstance(answer, Rejected)
    assert "'a' is in use" in answer.reason
    assert answer.cause is RefusalCause.ID_IN_USE
    world.drain()
    assert isinstance(world.submit(make_request("a"))[0], Queued)
    world.drain()


def test_reserve_refuses_what_it_could_never_reserve_and_says_so():
    config = SchedulerConfig(block_size=4, kv_policy="reserve", max_model_len=100)
    scheduler = Scheduler(config, num_blocks=5)
    [answer] = scheduler.add(make_request("a", [1] * 8, max_tokens=13), 0)
    assert "needs 6 blocks" in answer.reason
    assert "lower max_tokens" in answer.reason
    assert isinstance(scheduler.add(make_request("a", [1] * 8, max_tokens=12), 0)[0], Queued)
    [answer] = scheduler.add(make_request("b", [1] * 8, max_tokens=None), 0)
    assert "needs 25 blocks" in answer.reason


def ending(tokens, *, max_tokens=8, min_tokens=0, max_model_len=50) -> tuple[Retired, int]:
    """How a sequence ends whose model says these tokens, 6 being a stop; and after how many."""
    scheduler = Scheduler(SchedulerConfig(max_model_len=max_model_len), num_blocks=10)
    asked = make_request("a", max_tokens=max_tokens, min_tokens=min_tokens, stops=True)
    scheduler.add(asked, 0)
    for number, token in enumerate(tokens, 1):
        events = scheduler.complete(scheduler.schedule(0), StepResult([token]))
        if isinstance(events[-1], Retired):
            return events[-1], number
    raise AssertionError("it goes on")


def test_a_stop_id_ends_it():
    end, number = ending([1, 6, 1])
    assert (end.reason, end.stop_token_id, number) == (FinishReason.STOP, 6, 2)


def test_a_stop_id_before_min_tokens_does_not():
    end, number = ending([6, 6, 6, 1], min_tokens=3)
    assert (end.reason, number) == (FinishReason.STOP, 3)


def test_max_tokens_ends_it_and_a_stop_id_there_is_still_a_stop():
    end, number = ending([1] * 9)
    assert (end.reason, end.detail, number) == (FinishReason.LENGTH, "", 8)
    assert ending([1] * 7 + [6])[0].reason is FinishReason.STOP


def test_max_model_len_ends_it_with_a_sentence():
    end, number = ending([1] * 9, max_tokens=None, max_model_len=5)
    assert (end.reason, end.detail, number) == (FinishReason.LENGTH, "reached max_model_len=5", 4)


def test_aborting_ends_what_lives_once_and_no_more():
    world = World(SchedulerConfig(max_num_seqs=2), 30)
    world.submit(make_request("a", n=3))
    world.turn()
    assert [type(e) for e in world.abort("a", 1)] == [Aborted]
    assert world.abort("a", 1) == []
    assert world.abort("nobody") == []
    assert len(world.abort("a")) == 2
    assert not world.scheduler.has_unfinished()
    world.drain()


def test_a_member_that_ended_in_a_static_batch_answers_with_its_batch():
    world = World(SchedulerConfig(unit="request"), 30)
    world.submit(make_request("a", max_tokens=1))
    world.submit(make_request("b", max_tokens=3))
    world.turn()
    assert world.abort("a") == []
    assert world.scheduler.live_request_ids() == ["a", "b"]
    assert [e.request_id for e in world.abort("b")] == ["b", "a"]
    world.drain()


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ({"max_num_seqs": 0}, "max_num_seqs must be an integer of at least 1, got 0"),
        ({"block_size": True}, "block_size must be an integer"),
        ({"max_model_len": 1}, "at least 2"),
        ({"watermark": 1.0}, "watermark must be a share"),
        ({"kv_policy": "hope"}, "kv_policy must be one of on-demand, reserve, predict, got 'hope'"),
        ({"unit": "token"}, "unit must be one of"),
        ({"enable_chunked_prefill": False}, "is below max_model_len=8192"),
        (
            {
                "enable_chunked_prefill": False,
                "max_num_batched_tokens": 8192,
                "long_prefill_token_threshold": 5,
            },
            "cuts prompts into chunks",
        ),
    ],
)
def test_a_configuration_that_cannot_be_is_refused_with_a_sentence(knobs, sentence):
    with pytest.raises(ValueError, match=sentence):
        SchedulerConfig(**knobs)


@pytest.mark.parametrize("ahead", [False, True])
def test_a_retried_request_never_runs_twice_at_once(ahead):
    """Retries with the same id at every step, also right after the client has gone."""
    world = World(SchedulerConfig(max_num_seqs=4), 30)
    for number in range(12):
        world.submit(make_request("same", max_tokens=3))
        if number % 4 == 3:
            assert all(e.cause is AbortCause.CLIENT for e in world.abort("same"))
        step = world.schedule()
        ids = [chunk.sequence.request.request_id for chunk in step.chunks]
        assert len(ids) == len(set(ids))
        assert len(world.scheduler.running_sequences()) <= 1
        while len(world.scheduler.in_flight) > ahead:
            world.complete()
    world.drain()
    assert len(world.endings) > 2


@pytest.mark.parametrize("kv_policy", ["on-demand", "reserve"])
def test_p74_forced_tokens_come_all_of_them_whatever_max_tokens_and_stop_ids_say(kv_policy):
    scheduler = Scheduler(SchedulerConfig(kv_policy=kv_policy, max_model_len=64), num_blocks=10)
    forced = [STOP_TOKEN_ID if number % 3 == 0 else 1 for number in range(20)]
    scheduler.add(make_request("a", max_tokens=16, stops=True, forced=forced), 0)
    for token in forced[:-1]:
        events = scheduler.complete(scheduler.schedule(0), StepResult([token]))
        assert len(events) == 1
    _, end = scheduler.complete(scheduler.schedule(0), StepResult([forced[-1]]))
    assert isinstance(end, Retired)
    assert (end.reason, end.detail) == (FinishReason.LENGTH, "")


def test_a_stop_id_as_the_last_forced_token_is_a_stop():
    scheduler = Scheduler(SchedulerConfig(), num_blocks=10)
    scheduler.add(make_request("a", stops=True, forced=[STOP_TOKEN_ID]), 0)
    end = scheduler.complete(scheduler.schedule(0), StepResult([STOP_TOKEN_ID]))[-1]
    assert (end.reason, end.stop_token_id) == (FinishReason.STOP, STOP_TOKEN_ID)


def test_forced_tokens_that_are_none_are_refused():
    scheduler = Scheduler(SchedulerConfig(), num_blocks=10)
    [answer] = scheduler.add(make_request("a", forced=[3, -1]), 0)
    assert isinstance(answer, Rejected)


def test_the_victim_rule_goes_with_the_ordering_unless_named():
    def victim_of(**knobs):
        return type(build_policies(SchedulerConfig(**knobs)).victim)

    assert victim_of() is Newest
    assert victim_of(ordering="priority") is LowestPriority
    assert victim_of(ordering="priority", victim="newest") is Newest
    assert victim_of(victim="lowest-priority") is LowestPriority
    assert victim_of(victim="least-lost") is LeastLost
    assert victim_of(ordering="sjf") is Newest
