"""A stride is taken while it is what comes next, or not at all."""

from __future__ import annotations

import pytest

from headway.core.config import SchedulerConfig
from headway.core.events import Retired
from headway.core.request import FinishReason, Request, SamplingParams
from headway.core.scheduler import Scheduler
from headway.core.step import StepResult
from headway.core.stride import Stride

SAID = 7


def decoding(*, max_tokens: int = 10) -> Scheduler:
    """Two sequences past their prompts of three tokens."""
    scheduler = Scheduler(SchedulerConfig(block_size=4, max_model_len=64), 20)
    for name in ("a", "b"):
        sampling = SamplingParams(max_tokens=max_tokens)
        scheduler.add(
            Request(request_id=name, prompt_token_ids=(1, 2, 3), sampling=sampling), now_ns=0
        )
    step = scheduler.schedule(0)
    scheduler.complete(step, StepResult([SAID, SAID]))
    return scheduler


def offered(scheduler: Scheduler) -> Stride:
    stride = scheduler.stride(0)
    assert stride is not None
    return stride


def test_the_last_step_that_fits_ends_who_is_full():
    scheduler = decoding(max_tokens=6)
    stride = offered(scheduler)
    assert stride.max_num_steps == 5
    ended = scheduler.take(stride, 5, [[SAID] * 5] * 2)
    assert [type(event) for event in ended] == [Retired, Retired]
    assert {event.reason for event in ended} == {FinishReason.LENGTH}
    assert scheduler.num_steps == 6
    assert scheduler.pool.num_held == 0


@pytest.mark.parametrize("what", ["an abort", "an arrival", "a step", "itself"])
def test_what_happens_in_between_makes_it_out_of_date(what):
    scheduler = decoding()
    stride = offered(scheduler)
    if what == "an abort":
        scheduler.abort("a")
    elif what == "an arrival":
        sampling = SamplingParams(max_tokens=2)
        scheduler.add(Request(request_id="c", prompt_token_ids=(1,), sampling=sampling), 0)
    elif what == "a step":
        scheduler.complete(scheduler.schedule(0), StepResult([SAID, SAID]))
    else:
        scheduler.take(stride, 1, [[SAID]] * 2)
    held, steps = scheduler.pool.num_held, scheduler.num_steps
    with pytest.raises(RuntimeError, match="out of date"):
        scheduler.take(stride, 1, [[SAID]] * 2)
    assert (scheduler.pool.num_held, scheduler.num_steps) == (held, steps)


@pytest.mark.parametrize(("num_steps", "tokens"), [(0, []), (99, [[SAID] * 99] * 2), (2, [[SAID]])])
def test_other_steps_or_tokens_change_nothing(num_steps, tokens):
    scheduler = decoding()
    stride = offered(scheduler)
    with pytest.raises(ValueError, match=r"steps of a stride|tokens are wanted"):
        scheduler.take(stride, num_steps, tokens)
    assert scheduler.take(stride, 2, [[SAID] * 2] * 2) == []
