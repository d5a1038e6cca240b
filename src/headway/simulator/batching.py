"""What continuous batching is worth for given lengths: the same requests in both batching units.

Every batch is full: as many clients as slots ask again as soon as they are answered, and memory is
never scarce. What is left of the difference is slots that idle in a static batch, and prompts
beside decodes. A static batch here pads nothing; one of padded tensors is slower still.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from headway.core.config import SchedulerConfig
from headway.simulator.result import Result
from headway.simulator.simulate import simulate
from headway.simulator.step_time.base import StepTimeModel
from headway.simulator.workload.base import ClientRequest, Segment, Traffic
from headway.simulator.workload.draws import Purpose, Uniforms
from headway.simulator.workload.exact_math import Integers
from headway.simulator.workload.lengths import LengthLaw, histogram

BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_BATCHES = 8  # full ones in a row, which the rate is of
_LEAST_BATCHES = 2
_LEAST_REQUESTS = 128
_MOST_PROMPT_TOKENS = 32_000_000  # of a run
_MOST_STEPS = 300_000  # of a run, each of which takes some 150 bytes


class Lengths(NamedTuple):
    """Of one request, in tokens, both at least 1."""

    prompt: int
    output: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingPoint:
    """Both units at one number of slots; rates are output tokens per second."""

    batch_size: int
    slot_share: float  # E[mean output] / E[longest of the batch]: of a static batch's slots, used
    static_per_second: float
    continuous_per_second: float

    @property
    def gain(self) -> float:
        """Of continuous over static; 1 is none."""
        return self.continuous_per_second / self.static_per_second

    @property
    def slot_gain(self) -> float:
        """The gain if steps took the same whatever is in them, and prompts nothing."""
        return 1 / self.slot_share


def law_of(lengths: Integers) -> LengthLaw:
    """Each length as likely as it is frequent."""
    values, counts = np.unique(lengths, return_counts=True)
    return histogram(dict(zip(values.tolist(), counts.tolist(), strict=True)))


def slot_share(law: LengthLaw, batch_size: int) -> float:
    """The closed form: of the slots of a static batch, the share that makes tokens."""
    return law.mean() / law.expected_max(batch_size)


def batching_curve(
    prompts: Integers,
    outputs: Integers,
    model: StepTimeModel,
    *,
    token_budget: int,
    batch_sizes: Iterable[int] = BATCH_SIZES,
    seed: int = 0,
) -> Iterator[BatchingPoint]:
    """A point for each size, from requests drawn of these with equal chances.

    `prompts` and `outputs`: tokens of each request, [requests], all at least 1. The curve ends
    where two full batches would be too much work.
    """
    law = law_of(outputs)
    for batch_size in batch_sizes:
        steps = law.expected_max(batch_size) + batch_size * prompts.mean() / token_budget
        num_batches = _num_batches(batch_size, float(steps), float(prompts.mean()))
        if num_batches < _LEAST_BATCHES:
            return
        drawn = _drawn(prompts, outputs, num_batches * batch_size, seed)
        static = run_unit("request", drawn, batch_size, model, token_budget)
        continuous = run_unit("step", drawn, batch_size, model, token_budget)
        yield BatchingPoint(
            batch_size=batch_size,
            slot_share=slot_share(law, batch_size),
            static_per_second=_rate(static, 0, int(static.sequences["ended_ns"].max())),
            continuous_per_second=_rate(continuous, *_refilled(continuous, batch_size)),
        )


def run_unit(
    unit: str,
    requests: SequenceOf[Lengths],
    batch_size: int,
    model: StepTimeModel,
    token_budget: int,
) -> Result:
    """These requests in their order, `batch_size` at a time; `unit` as SchedulerConfig has it."""
    longest = max(one.prompt + one.output for one in requests)
    config = SchedulerConfig(
        max_num_seqs=batch_size,
        max_num_batched_tokens=max(token_budget, batch_size),
        max_model_len=longest,
        enable_prefix_caching=False,
        unit=unit,
    )
    num_blocks = batch_size * config.num_blocks_for(longest)
    return simulate(config, _Clients(requests, batch_size), model, num_blocks=num_blocks)


class _Clients:
    """So many clients, each of which asks for the next of the list when it is answered."""

    def __init__(self, requests: SequenceOf[Lengths], num_clients: int) -> None:
        self._requests = requests
        self._num_clients = num_clients
        self._next = num_clients

    def traffic(self) -> Traffic:
        return _Clients(self._requests, self._num_clients)

    def arrivals(self) -> Iterator[ClientRequest]:
        first = range(min(self._num_clients, len(self._requests)))
        return (self._request(index, 0) for index in first)

    def follow_up(self, ended: ClientRequest, now_ns: int) -> Iterable[ClientRequest]:
        if self._next >= len(self._requests):
            return ()
        self._next += 1
        return (self._request(self._next - 1, now_ns),)

    def _request(self, index: int, arrival_ns: int) -> ClientRequest:
        prompt, output = self._requests[index]
        return ClientRequest(
            request_id=str(index),
            arrival_ns=arrival_ns,
            prompt=(Segment(2 * index, prompt),),
            output=Segment(2 * index + 1, output),
        )


def _num_batches(batch_size: int, steps: float, mean_prompt: float) -> int:
    """Full static batches of a run; `steps`: that one of them takes."""
    wanted = max(_BATCHES, _LEAST_REQUESTS // batch_size)
    most = min(_MOST_STEPS / steps, _MOST_PROMPT_TOKENS / (batch_size * mean_prompt))
    return min(wanted, int(most))


def _drawn(prompts: Integers, outputs: Integers, count: int, seed: int) -> list[Lengths]:
    """Each as likely as another, however often; the first ones are the same for every count."""
    uniforms = Uniforms(seed, 0, Purpose.OUTPUT).take(count)
    rows = (uniforms * len(outputs)).astype(np.int64)
    return [
        Lengths(*pair) for pair in zip(prompts[rows].tolist(), outputs[rows].tolist(), strict=True)
    ]


def _refilled(result: Result, batch_size: int) -> tuple[int, int]:
    """From when the first batch is full until when nobody is left to fill it up."""
    admitted = np.sort(result.sequences["admitted_ns"])
    return int(admitted[batch_size - 1]), int(admitted[-1])


def _rate(result: Result, begin_ns: int, end_ns: int) -> float:
    """Output tokens per second of the steps between two times."""
    ends = result.steps["end_ns"]
    rows = (ends > begin_ns) & (ends <= end_ns)
    return float(result.steps["num_samples"][rows].sum() / ((end_ns - begin_ns) / 1e9))
