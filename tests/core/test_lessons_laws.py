"""The published 256-request lesson: its laws hold exactly, step by step.

`tests/lessons/workload001.json` is a witness of the published workload, not the author's draw.
Headway keeps generated tokens when it preempts, the published simulator makes them again, so
numbers of preemptions and of recomputed tokens differ from the article's and are not compared.
`tests/lessons` compares them, with a rule for victims that forgets.
"""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from headway.core.config import SchedulerConfig
from headway.core.events import Retired
from headway.core.request import Request, SamplingParams
from headway.core.scheduler import Scheduler
from headway.core.step import StepResult

WORKLOAD = json.loads((Path(__file__).parents[1] / "lessons" / "workload001.json").read_text())
BLOCKS_PER_GIB = 2**30 / (147_456 * 16)


@dataclass(frozen=True)
class Run:
    decisions: tuple
    peak: int
    num_preemptions: int
    num_recomputed: int


@functools.cache
def run(*, slots=256, gib=16, kv_policy="on-demand", unit="step", declared=4) -> Run:
    """Drain the workload; `declared` is max_tokens over what a request really makes."""
    config = SchedulerConfig(
        max_num_seqs=slots,
        max_num_batched_tokens=8192,
        max_model_len=100_000,
        enable_prefix_caching=False,
        reserve_full_isl=False,
        kv_policy=kv_policy,
        unit=unit,
    )
    scheduler = Scheduler(config, int(gib * BLOCKS_PER_GIB))
    outputs = WORKLOAD["output"]
    for number, (prompt, output) in enumerate(zip(WORKLOAD["prompt"], outputs, strict=True)):
        scheduler.add(_request(number, prompt, output * declared), now_ns=0)
    decisions, peak, num_preemptions, num_recomputed = [], 0, 0, 0
    while scheduler.has_unfinished():
        step = scheduler.schedule(0)
        _check_step(scheduler, step)
        peak = max(peak, scheduler.num_running)
        num_preemptions += len(step.preempted)
        num_recomputed += sum(event.num_recomputed_tokens for event in step.resumed)
        decisions.append(
            tuple((c.sequence.sequence_id, c.first_position, c.num_tokens) for c in step.chunks)
        )
        events = scheduler.complete(step, _tokens(step, outputs))
        assert all(e.stop_token_id == 1 for e in events if isinstance(e, Retired))
    return Run(tuple(decisions), peak, num_preemptions, num_recomputed)


def _request(number: int, num_prompt_tokens: int, max_tokens: int) -> Request:
    return Request(
        request_id=str(number),
        prompt_token_ids=(2,) * num_prompt_tokens,
        sampling=SamplingParams(max_tokens=max_tokens),
        stop_token_ids=frozenset([1]),
    )


def _tokens(step, outputs) -> StepResult:
    """Token 1, which stops, as the last one of each request."""
    return StepResult(
        [
            1 if c.sequence.num_output_tokens + 1 == outputs[c.sequence.sequence_id] else 2
            for c in step.chunks
            if c.samples
        ]
    )


def _check_step(scheduler, step) -> None:
    """Law 6: who preempts admits nobody, the newest goes, the oldest never does."""
    running = [sequence.sequence_id for sequence in scheduler.running_sequences()]
    assert not (step.preempted and (step.admitted or step.resumed))
    for event in step.preempted:
        assert all(event.sequence_id > other for other in running)
    assert scheduler.num_running <= scheduler.config.max_num_seqs
    assert scheduler.pool.num_held <= scheduler.pool.num_blocks


def test_the_pool_and_the_peak_are_the_published_ones():
    assert int(16 * BLOCKS_PER_GIB) == 7281
    # On the author's draw 83; the lesson's own reconstruction has 84 on the witness, too.
    assert run().peak == 84


@pytest.mark.parametrize(("declared", "peak"), [(1, 72), (2, 66), (4, 55), (8, 41)])
def test_reservation_peaks_are_those_of_the_witness(declared, peak):
    """Published 71, 65, 55, 42, on the author's draw."""
    assert run(kv_policy="reserve", declared=declared).peak == peak


def test_law_1_slots_above_the_peak_are_inert():
    assert run(slots=128).decisions == run(slots=256).decisions == run(slots=512).decisions
    assert run(slots=256, gib=2).decisions == run(slots=512, gib=2).decisions


def test_law_2_on_demand_never_reads_max_tokens():
    assert all(run(declared=m).decisions == run().decisions for m in (1, 2, 8))


@pytest.mark.parametrize("unit", ["step", "request"])
def test_law_3_reserve_never_preempts(unit):
    for gib in (2, 16):
        outcome = run(kv_policy="reserve", unit=unit, gib=gib, slots=64)
        assert (outcome.num_preemptions, outcome.num_recomputed) == (0, 0)


def test_law_4_64_gib_hold_everyone():
    outcome = run(gib=64)
    assert (outcome.num_preemptions, outcome.peak) == (0, 256)


def test_law_5_64_slots_never_preempt_in_16_gib():
    outcome = run(slots=64)
    assert (outcome.num_preemptions, outcome.peak) == (0, 64)


def test_law_7_static_takes_longer_than_continuous_and_that_longer_than_on_demand():
    static = seconds(run(kv_policy="reserve", unit="request", slots=64))
    continuous = seconds(run(kv_policy="reserve"))
    assert static > continuous > seconds(run())


@pytest.mark.parametrize(
    ("knobs", "tokens_per_second"),
    [
        ({"slots": 1}, 158.568),
        ({"slots": 8}, 1018.00),
        ({"slots": 32}, 2397.87),
        ({"slots": 64}, 3038.03),
        ({"gib": 64}, 3526.97),
        ({"kv_policy": "reserve", "declared": 1}, 2973.85),
        ({"kv_policy": "reserve", "declared": 4}, 2524.06),
        ({"kv_policy": "reserve", "declared": 8}, 2082.74),
        ({"kv_policy": "reserve", "unit": "request", "slots": 64}, 1578.15),
    ],
)
def test_runs_without_preemption_take_the_reconstructed_time(knobs, tokens_per_second):
    assert 65_536 / seconds(run(**knobs)) == pytest.approx(tokens_per_second, rel=1e-5)


def seconds(outcome: Run) -> float:
    """The lesson's clock: the larger of reading weights and KV, and of computing."""
    weight_bytes, bytes_per_second, flop_per_second = 15.26 * 2**30, 0.8 * 3.35e12, 0.7 * 989e12
    total = 0.0
    for chunks in outcome.decisions:
        decodes = [(i, p, n) for i, p, n in chunks if p >= WORKLOAD["prompt"][i]]
        num_tokens = sum(n for _, _, n in chunks)
        kv_bytes = 147_456 * sum(position + 1 for _, position, _ in decodes)
        total += max(
            (weight_bytes + kv_bytes) / bytes_per_second,
            weight_bytes * num_tokens / flop_per_second,
        )
    return total


def test_memory_pressure_preempts_and_recomputes():
    for gib in (2, 16):
        assert run(gib=gib).num_preemptions > 0
        assert run(gib=gib).num_recomputed > 0
