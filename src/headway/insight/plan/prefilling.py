"""What prompts cost: in steps of their own, or in those that decode as well.

Beside decodes, arithmetic of prompts hides behind the reading of weights and contexts until there
is more of it than that takes. So it matters how they fall on steps: a step with none is not made up
for by one with two. They come independently; their tokens in a step are a compound Poisson sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from headway.insight.plan.demand import F64, thinned
from headway.insight.plan.timing import Decoding
from headway.simulator.step_time.base import PlacedChunk, StepShape, shape_of
from headway.simulator.workload.lengths import LengthLaw

_CELLS = 160  # of a sum of prompts
_DEVIATIONS = 6  # beyond the mean that it reaches
_ALONE = 64  # lengths that stand for all
_MOST_IN_A_STEP = 200.0  # prompts; of more, only the mean counts
_NEARLY_ALL = 0.9995  # of the prompts, that a single one of them reaches


@dataclass(frozen=True, slots=True)
class Prefilling:
    """Prompts in chunks of at most `max_num_batched_tokens`, decodes that share a step included.

    `is_mixed`: they share steps. Otherwise prompts have steps of their own.
    """

    decoding: Decoding
    max_num_batched_tokens: int
    is_mixed: bool = True

    def prompt_s(self, num_tokens: int) -> float:
        """A prompt alone, in seconds."""
        total, chunk = 0.0, self.max_num_batched_tokens
        for first in range(0, num_tokens, chunk):
            count = min(chunk, num_tokens - first)
            placed = PlacedChunk(first, count, num_tokens, first + count == num_tokens)
            total += self.decoding.model.step_ns(shape_of([placed])) / 1e9
        return total

    def mean_s(self, prompts: LengthLaw, batch: float, per_step: float) -> float:
        """What a prompt costs on average, in seconds, beside `batch` decodes and with as many
        prompts that come `per_step`."""
        if not self.is_mixed or round(batch) >= self.max_num_batched_tokens:
            lengths, shares = thinned(prompts, _ALONE)
            return float(
                sum(self.prompt_s(int(p)) * s for p, s in zip(lengths, shares, strict=True))
            )
        unit, chances = tokens_of_a_step(prompts, per_step)
        beside = min(max(1, round(batch)), self.max_num_batched_tokens - 1)
        mean = prompts.mean()
        attended = _mean_attended(prompts)
        costs = [
            self._beside_s(cell * unit, beside, mean, attended) if chance > 1e-9 else 0.0
            for cell, chance in enumerate(chances.tolist())
        ]
        return float(chances @ np.array(costs)) / per_step

    def _beside_s(self, num_tokens: float, beside: int, mean: float, attended: float) -> float:
        """What so many prompt tokens add to steps of decodes; what is too much for one goes on."""
        room = self.max_num_batched_tokens - beside
        whole, rest = divmod(round(num_tokens), room)
        decodes = self.decoding.shape(beside)
        alone_ns = self.decoding.model.step_ns(decodes)
        total = 0.0
        for count, times in ((room, whole), (rest, 1)):
            if count and times:
                prompts = max(1, round(count / mean))
                shape = StepShape(
                    num_prefill_tokens=count,
                    num_prefills=prompts,
                    prefill_attended=round(count * attended),
                    prefill_context=count,
                    num_decode_tokens=decodes.num_decode_tokens,
                    decode_attended=decodes.decode_attended,
                    num_samples=decodes.num_samples + prompts,
                )
                total += times * (self.decoding.model.step_ns(shape) - alone_ns)
        return total / 1e9


def _mean_attended(prompts: LengthLaw) -> float:
    """Tokens that a token of a prompt attends, itself among them."""
    squares = float((prompts.values.astype(np.float64) ** 2) @ prompts.probabilities())
    return (squares / prompts.mean() + 1) / 2


def tokens_of_a_step(prompts: LengthLaw, per_step: float) -> tuple[float, F64]:
    """The prompt tokens of a step: a unit, and the probabilities of 0, 1, 2, ... of them.

    Panjer's recursion (ASTIN Bulletin 12, 1981).
    """
    mean = prompts.mean()
    if per_step > _MOST_IN_A_STEP:
        return per_step * mean, np.array([0.0, 1.0])
    squares = float((prompts.values.astype(np.float64) ** 2) @ prompts.probabilities())
    reach = per_step * mean + _DEVIATIONS * math.sqrt(per_step * squares)
    unit = max(1.0, max(reach, prompts.quantile(_NEARLY_ALL)) / _CELLS)
    cells = np.clip(np.rint(prompts.values / unit).astype(np.int64), 1, _CELLS)
    single = np.bincount(cells, prompts.probabilities(), minlength=_CELLS + 1)
    # Whole cells make prompts a little longer or shorter: the unit makes up for it.
    unit *= mean / (unit * float(single @ np.arange(_CELLS + 1)))
    weighted = single * np.arange(_CELLS + 1)
    chances = np.zeros(_CELLS + 1)
    chances[0] = math.exp(-per_step)
    for cell in range(1, _CELLS + 1):
        chances[cell] = (
            per_step / cell * float(weighted[1 : cell + 1] @ chances[cell - 1 :: -1][:cell])
        )
    return unit, chances / chances.sum()
