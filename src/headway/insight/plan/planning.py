"""A plan: every figure that can be known before a launch, from what is asked."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from headway.insight.plan.capacity import Capacity, Load, RequestCost, cost_per_million
from headway.insight.plan.demand import Demand
from headway.insight.plan.memory import KvCache, Memory
from headway.insight.plan.prefilling import Prefilling
from headway.insight.plan.residents import KV_POLICIES, Limits, Residents, expected_residents
from headway.insight.plan.timing import Decoding, Ridge, ridge
from headway.simulator.step_time.base import StepTimeModel
from headway.simulator.step_time.hardware import Hardware
from headway.simulator.step_time.roofline import RooflineModel

_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is to be planned. `hardware` is None where steps were measured.

    `limits.max_num_seqs`: a cap that somebody asks for; None plans without one. `rate`: requests a
    second that shall be served. `price_per_hour`: of all devices together.
    """

    cache: KvCache
    memory: Memory
    limits: Limits
    demand: Demand
    step_times: StepTimeModel
    hardware: Hardware | None
    compute_dtype: str
    kv_policy: str = "on-demand"
    is_mixed: bool = True
    rate: float | None = None
    price_per_hour: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRow:
    """Of the table of t(b)."""

    batch: int
    step_s: float
    tokens_per_second: float
    fits: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The answers. Times in seconds, sizes in tokens, memory in bytes.

    `demand` is what is served of what was asked: `share_too_long` of the requests is refused for
    their length or cut, `share_never_fits` would not fit the empty pool. `residents`: None for a
    policy that serves nobody. `line_s`: a and gamma of t(b) = a + gamma b. `at_rate` is None where
    no rate was asked, or where it is too much: then `is_overloaded`. `decodes_at_rate`: Little's
    law with prompts left out.
    """

    question: Question
    demand: Demand
    context: float
    share_too_long: float
    share_never_fits: float
    worst_case: float
    residents: dict[str, Residents | None]
    batches: list[BatchRow]
    line_s: tuple[float, float]
    knee: int | None
    ridge: Ridge | None
    cost: RequestCost
    requests_per_second: float
    tokens_per_second: float
    loads: list[Load]
    at_rate: Load | None
    decodes_at_rate: float | None
    is_overloaded: bool
    cost_per_million: float | None

    @property
    def chosen(self) -> Residents:
        """Under the policy that the rest is planned with."""
        found = self.residents[self.question.kv_policy]
        assert found is not None
        return found

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it: everything but the question's models and laws."""
        cache = self.question.cache
        skipped = ("question", "demand", "residents", "batches", "loads", "line_s")
        plain = {n: _plain(getattr(self, n)) for n in self.__slots__ if n not in skipped}
        return {
            "kv_cache": {**asdict(cache), "num_tokens": cache.num_tokens},
            "memory": _plain(self.question.memory),
            "limits": _plain(self.question.limits),
            "kv_policy": self.question.kv_policy,
            "lengths": self._lengths(),
            **plain,
            "residents": {name: _plain(found) for name, found in self.residents.items()},
            "step_times": [asdict(row) for row in self.batches],
            "a_s": self.line_s[0],
            "gamma_s": self.line_s[1],
            "loads": [asdict(load) for load in self.loads],
        }

    def _lengths(self) -> dict[str, Any]:
        asked = self.question.demand
        return {
            name: {
                "law": law.text[:200],
                "mean": law.mean(),
                **{f"p{round(q * 100):02}": law.quantile(q) for q in (0.05, 0.5, 0.95)},
            }
            for name, law in (("prompt_tokens", asked.prompts), ("output_tokens", asked.outputs))
        }


def make_plan(question: Question) -> Plan:
    """Raises ValueError, with the numbers, where no request fits."""
    limits, asked = question.limits, question.demand
    demand = asked.within(limits.max_model_len, question.cache.num_tokens)
    residents = {policy: _residents(question, demand, policy) for policy in KV_POLICIES}
    chosen = residents[question.kv_policy]
    if chosen is None:
        raise ValueError(
            f"with kv_policy reserve nobody is served: every request reserves more than the "
            f"{question.cache.num_tokens:,} tokens of KV cache: clients must declare fewer "
            f"max_tokens, or max_model_len must be lower"
        )
    context = mean_context(demand)
    decoding = Decoding(question.step_times, context)
    prefilling = Prefilling(decoding, limits.max_num_batched_tokens, question.is_mixed)
    capacity = Capacity(demand, decoding, prefilling, chosen.mean)
    rate = question.rate
    at_rate = capacity.load(rate) if rate is not None else None
    tokens_per_second = capacity.requests_per_second * demand.mean(demand.output_sizes)
    price = question.price_per_hour
    return Plan(
        question=question,
        demand=demand,
        context=context,
        share_too_long=asked.mean(asked.sizes > limits.max_model_len),
        share_never_fits=_never_fit(question),
        worst_case=question.cache.worst_case(limits.max_model_len),
        residents=residents,
        batches=_table(decoding, chosen.mean),
        line_s=decoding.line(math.floor(chosen.mean)),
        knee=decoding.knee(),
        ridge=_ridge(question, context),
        cost=capacity.cost(chosen.mean),
        requests_per_second=capacity.requests_per_second,
        tokens_per_second=tokens_per_second,
        loads=capacity.loads(),
        at_rate=at_rate,
        decodes_at_rate=None if rate is None else capacity.batch_of_decodes(rate),
        is_overloaded=rate is not None and at_rate is None,
        cost_per_million=None if price is None else cost_per_million(price, tokens_per_second),
    )


def mean_context(demand: Demand) -> float:
    """Tokens that a decode attends, over all decodes: a long output has more of them."""
    prompt, output = demand.prompt_sizes, demand.output_sizes
    decodes = output - 1
    total = demand.mean(decodes)
    if not total:
        return demand.mean(prompt) + 1
    return demand.mean(decodes * prompt + decodes * (decodes + 1) / 2) / total


def _residents(question: Question, demand: Demand, policy: str) -> Residents | None:
    """None for reservations that are all larger than the pool: nobody is served then."""
    limits = question.limits
    if policy == "reserve":
        fits = demand.reserved(limits.max_model_len) <= question.cache.num_tokens
        if not fits.any():
            return None
        demand = demand.where(fits)
    return expected_residents(demand, limits, policy)


def _never_fit(question: Question) -> float:
    asked, limits = question.demand, question.limits
    within = asked.sizes <= limits.max_model_len
    return asked.mean(within & (asked.sizes > question.cache.num_tokens))


def _table(decoding: Decoding, most: float) -> list[BatchRow]:
    """Powers of two up to one that does not fit, and what just fits."""
    beyond = next((batch for batch in _BATCHES if batch > most), _BATCHES[-1])
    batches = sorted({*(b for b in _BATCHES if b <= beyond), max(1, math.floor(most))})
    return [
        BatchRow(
            batch=batch,
            step_s=decoding.step_s(batch),
            tokens_per_second=decoding.tokens_per_second(batch),
            fits=batch <= most,
        )
        for batch in batches
    ]


def _ridge(question: Question, context: float) -> Ridge | None:
    model = question.step_times
    if not isinstance(model, RooflineModel) or question.hardware is None:
        return None
    return ridge(model, question.hardware, question.compute_dtype, context)


def _plain(value: Any) -> Any:
    return asdict(value) if hasattr(value, "__dataclass_fields__") else value
