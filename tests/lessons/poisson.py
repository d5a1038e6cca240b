"""Article 2 on the product's scheduler and simulator: requests arrive at random, for ever."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

import numpy as np

from headway.core.config import SchedulerConfig
from headway.simulator.result import Result
from headway.simulator.simulate import simulate
from headway.simulator.step_time.base import PlacedChunk, StepShape, shape_of
from headway.simulator.workload.arrivals import Renewal
from headway.simulator.workload.lengths import lognormal
from headway.simulator.workload.synthetic import Synthetic
from tests.lessons.clocks import CLOCK_2

LONGEST_PROMPT, LONGEST_OUTPUT, SLOTS = 8192, 2048, 256
PROMPT_LAW = lognormal(1000, 0.8, 32, LONGEST_PROMPT)
OUTPUT_LAW = lognormal(250, 0.8, 8, LONGEST_OUTPUT)
NUM_REQUESTS, NUM_DISCARDED = 1500, 150


class PaddedClock:
    """A static batch in which all prompts are as long as the longest, and nobody leaves.

    First come, first served: the next prefills are the next arrivals. Asked once for each step.
    """

    def __init__(self, workload: Synthetic) -> None:
        requests = workload.traffic().arrivals()
        self._prompts: Iterator[int] = (request.num_prompt_tokens for request in requests)
        self._size = self._length = 0

    def step_ns(self, shape: StepShape) -> int:
        if shape.num_prefills:
            self._size = shape.num_prefills
            self._length = max(next(self._prompts) for _ in range(self._size))
            padded = PlacedChunk(0, self._length, self._length, True)
            return CLOCK_2.step_ns(shape_of([padded] * self._size))
        self._length += 1
        attended = self._size * self._length
        return CLOCK_2.step_ns(StepShape(0, 0, 0, 0, self._size, attended, self._size))

    def terms_ns(self, shape: StepShape) -> Mapping[str, float]:
        raise AssertionError("nobody asks")


def workload(rate: float, seed: int) -> Synthetic:
    return Synthetic(
        arrivals=Renewal(rate),
        prompt_tokens=PROMPT_LAW,
        output_tokens=OUTPUT_LAW,
        num_requests=NUM_REQUESTS,
        seed=seed,
    )


def config(slots: int, unit: str) -> SchedulerConfig:
    """Whole prompts of all who wait in one step, which decodes nothing."""
    return SchedulerConfig(
        max_num_seqs=slots,
        max_num_batched_tokens=slots * LONGEST_PROMPT,
        max_model_len=LONGEST_PROMPT + LONGEST_OUTPUT,
        enable_prefix_caching=False,
        enable_chunked_prefill=False,
        prefill="first",
        unit=unit,
    )


def room_for(slots: int) -> int:
    """Blocks that are never scarce."""
    return slots * SchedulerConfig().num_blocks_for(LONGEST_PROMPT + LONGEST_OUTPUT)


@functools.cache
def continuous(rate: float, seed: int) -> Result:
    asked = workload(rate, seed)
    return simulate(config(SLOTS, "step"), asked, CLOCK_2, num_blocks=room_for(SLOTS))


@functools.cache
def static(batch: int, seed: int) -> Result:
    """4 requests a second, which is more than it can serve."""
    asked = workload(4, seed)
    clock = PaddedClock(asked)
    return simulate(config(batch, "request"), asked, clock, num_blocks=room_for(batch))


def tokens_per_second(result: Result) -> float:
    """Output of all requests but the first, from the arrival of the first that counts."""
    requests = result.sequences
    assert len(requests["ended_ns"]) == NUM_REQUESTS
    begin_ns = requests["arrival_ns"][NUM_DISCARDED]
    seconds = (requests["ended_ns"].max() - begin_ns) / 1e9
    return float(requests["num_output_tokens"][NUM_DISCARDED:].sum() / seconds)


def p99_gap_ms(result: Result) -> float:
    """Of the times between the tokens of a request, those of all requests together."""
    return result.summary().itl_s.p99 * 1e3


def median_tpot_ms(result: Result) -> float:
    return float(np.median(result.tpot_s()[NUM_DISCARDED:])) * 1e3
