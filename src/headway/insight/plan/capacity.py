"""What a machine serves: seconds a request takes of it, the most requests a second, and Little's
law for fewer.

A request takes its prompt's time and, of each step that it decodes in, its part:

    tau(b) = prefill + tokens t(b) / b

A machine whose batch is b serves 1 / tau(b) requests a second, so the batch at a rate is where
rate tau(b) = 1, which is Little's law b = rate tokens t(b) where prompts cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from headway.insight.plan.demand import Demand
from headway.insight.plan.prefilling import Prefilling
from headway.insight.plan.timing import Decoding

_BATCHES = 16  # at which the cost of a prompt is computed; it lies on straight lines between them
_HALVINGS = 60
LOADS = (0.25, 0.5, 0.7, 0.8, 0.9, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A rate of requests and what it makes of the machine. `batch`: sequences that decode."""

    share: float  # of the capacity
    requests_per_second: float
    batch: float
    step_s: float  # mean time between two tokens of a sequence; NaN where there is one only
    tokens_per_second: float  # of output


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestCost:
    """Seconds of the machine that a request takes, at a batch."""

    batch: float
    prefill_s: float
    num_decodes: float
    decode_s: float  # of each token

    @property
    def total_s(self) -> float:
        return machine_seconds(self.prefill_s, self.num_decodes, self.decode_s)

    @property
    def prefill_share(self) -> float:
        return self.prefill_s / self.total_s


def machine_seconds(prefill_s: float, num_tokens: float, decode_s: float) -> float:
    """Of one request: its prompt, and its part of the steps that it decodes in."""
    return prefill_s + num_tokens * decode_s


def batch_at(rate: float, machine_s: Callable[[float], float], most: float) -> float | None:
    """The batch at which `rate` requests a second are served; None if `most` do not do it.

    `machine_s(b)`: seconds that a request takes of the machine; it falls with b.
    """
    if rate * machine_s(most) > 1:
        return None
    low, high = 0.0, most
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if rate * machine_s(middle) > 1:
            low = middle
        else:
            high = middle
    return high


class Capacity:
    """Of a machine with at most `most` sequences in a step."""

    def __init__(
        self, demand: Demand, decoding: Decoding, prefilling: Prefilling, most: float
    ) -> None:
        self._decoding = decoding
        self._num_tokens = demand.mean(demand.output_sizes)
        self._batches = np.geomspace(min(1.0, most), most, _BATCHES)
        self._prefills_s = [
            prefilling.mean_s(demand.prompts, batch, batch / self._num_tokens)
            for batch in self._batches.tolist()
        ]
        self.most = most

    def cost(self, batch: float) -> RequestCost:
        """The first token comes with the prompt, so there is a decode less than tokens."""
        return RequestCost(
            batch=batch,
            prefill_s=self._prefill_s(batch),
            num_decodes=self._num_tokens - 1,
            decode_s=self._decode_s(batch),
        )

    @property
    def requests_per_second(self) -> float:
        return 1 / self.cost(self.most).total_s

    def load(self, rate: float) -> Load | None:
        """None if it is more than the machine serves."""
        batch = batch_at(rate, lambda b: self.cost(b).total_s, self.most)
        if batch is None:
            return None
        decodes = rate * (self._num_tokens - 1)
        return Load(
            share=rate / self.requests_per_second,
            requests_per_second=rate,
            batch=batch,
            step_s=batch / decodes if decodes else math.nan,
            tokens_per_second=rate * self._num_tokens,
        )

    def loads(self) -> list[Load]:
        """At LOADS of the capacity."""
        found = (self.load(share * self.requests_per_second * (1 - 1e-9)) for share in LOADS)
        return [load for load in found if load is not None]

    def batch_of_decodes(self, rate: float) -> float | None:
        """Little's law with prompts that cost nothing: the least that the rate needs."""
        return batch_at(rate, lambda b: self._num_tokens * self._decode_s(b), self.most)

    def _decode_s(self, batch: float) -> float:
        return self._decoding.step_s(batch) / batch if batch else math.inf

    def _prefill_s(self, batch: float) -> float:
        return float(np.interp(batch, self._batches, self._prefills_s))


def cost_per_million(price_per_hour: float, tokens_per_second: float) -> float:
    """Of tokens, in the price's currency."""
    return price_per_hour / 3600 / tokens_per_second * 1e6
