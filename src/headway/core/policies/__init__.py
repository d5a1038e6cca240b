"""The choices a scheduler is made of; `build_policies` is the only place that knows their names."""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.core.config import SchedulerConfig
from headway.core.policies.admission import Admission, OnDemand, Reserve, Sparing
from headway.core.policies.batching import BatchingUnit, PerRequest, PerStep
from headway.core.policies.deadline import EarliestDeadline
from headway.core.policies.fair import Fair, MostServed
from headway.core.policies.forecast import LengthForecast
from headway.core.policies.guard import StallGuard
from headway.core.policies.ordering import ByPriority, Fcfs, Ordering
from headway.core.policies.passing import Passing
from headway.core.policies.precedence import Equality, Precedence, PriorityRanks
from headway.core.policies.predict import Predict
from headway.core.policies.prefill import Chunked, PrefillPlacement, Whole
from headway.core.policies.shares import TenantShares
from headway.core.policies.sharing import Shared
from headway.core.policies.shortest import USUAL_AGEING, ShortestFirst
from headway.core.policies.victim import LeastLost, LowestPriority, Newest, VictimRule
from headway.core.policies.yielding import Yielding


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """One choice for each question. They hold state, so every scheduler needs its own.

    `forecast` is what they know of lengths, for those of them that ask.
    """

    ordering: Ordering
    admission: Admission
    victim: VictimRule
    precedence: Precedence
    passing: Passing
    prefill: PrefillPlacement
    unit: BatchingUnit
    forecast: LengthForecast = field(default_factory=LengthForecast)


def build_policies(config: SchedulerConfig) -> Policies:
    """The policies that a checked configuration names."""
    forecast = LengthForecast()
    ordering, usual_victim = _build_ordering(config, forecast)
    precedence = _build_precedence(config, ordering)
    victims: dict[str, VictimRule] = {
        "auto": usual_victim,
        "most-served": usual_victim,
        "newest": Newest(),
        "least-lost": LeastLost(config.block_size),
        "lowest-priority": LowestPriority(),
    }
    on_demand = OnDemand(config.reserve_full_isl)
    if config.victim == "least-lost":
        on_demand = Sparing(config.reserve_full_isl, forecast, config.block_size)
    units: dict[str, type[BatchingUnit]] = {"step": PerStep, "request": PerRequest}
    admissions: dict[str, Admission] = {
        "on-demand": on_demand,
        "reserve": Reserve(config.max_model_len),
        "predict": Predict(
            forecast,
            block_size=config.block_size,
            reserve_full_isl=config.reserve_full_isl,
            risk_in_a_million=round(config.kv_risk * 1_000_000),
            num_tokens_a_step=config.max_num_batched_tokens // 16,
        ),
    }
    return Policies(
        ordering=ordering,
        admission=admissions[config.kv_policy],
        victim=victims[config.victim],
        passing=Passing(config.skip_blocked_ms * 1_000_000),
        precedence=precedence,
        prefill=_build_prefill(config, ordering, precedence),
        unit=units[config.unit](),
        forecast=forecast,
    )


def _build_ordering(
    config: SchedulerConfig, forecast: LengthForecast
) -> tuple[Ordering, VictimRule]:
    """And the victim rule that goes with it."""
    if config.ordering == "fair":
        fair = Fair(config)
        return fair, MostServed(fair)
    if config.ordering == "priority":
        return ByPriority(), LowestPriority()
    if config.ordering == "sjf":
        ageing = config.ageing_tokens_per_s
        return ShortestFirst(forecast, USUAL_AGEING if ageing is None else ageing), Newest()
    if config.ordering == "edf":
        return EarliestDeadline(forecast), Newest()
    return Fcfs(), Newest()


def _build_precedence(config: SchedulerConfig, ordering: Ordering) -> Precedence:
    # Whom `reserve` has admitted is never preempted, and a static batch is not changed.
    if config.kv_policy == "reserve" or config.unit == "request":
        return Equality()
    if isinstance(ordering, Fair):
        return ordering.shares
    return PriorityRanks() if config.ordering == "priority" else Equality()


def _build_prefill(
    config: SchedulerConfig, ordering: Ordering, precedence: Precedence
) -> PrefillPlacement:
    holds_decodes = {"mixed": False, "first": True}[config.prefill]
    if not config.enable_chunked_prefill:
        return Whole(holds_decodes)
    cap = config.long_prefill_token_threshold or config.max_num_batched_tokens
    target_ns = round(config.target_itl_ms * 1_000_000)
    most_under_way = config.max_num_partial_prefills or (8 if target_ns else 1)
    if most_under_way == 1 and not target_ns:
        if isinstance(precedence, TenantShares):
            return Yielding(precedence, holds_decodes, cap, config.max_num_batched_tokens)
        return Chunked(holds_decodes, cap)
    return Shared(
        ordering,
        holds_decodes=holds_decodes,
        max_chunk_tokens=cap,
        most_under_way=most_under_way,
        guard=StallGuard(target_ns) if target_ns else None,
    )
