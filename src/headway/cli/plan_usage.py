"""The lengths, and the rate, of a plan from what answers used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from headway.cli.own_flags import number_of
from headway.flags import FlagError
from headway.insight.plan.demand import Demand
from headway.insight.usage.answer import Ending
from headway.insight.usage.columns import UNSAID, Usage
from headway.insight.usage.read import read_usage
from headway.simulator.workload.clients import NOT_DECLARED, Declared
from headway.simulator.workload.forms import parse_declared

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BESIDE = ("--usage", "--rate", "--max-tokens")
_ENOUGH = 100  # answers, for lengths that are more than a guess


def demand_of_usage(given: Mapping[str, str]) -> tuple[Demand, float | None, tuple[str, ...]]:
    """With the rate, where the answers have times, and what to know of it. Raises ValueError."""
    for flag in given:
        if flag not in _BESIDE:
            raise FlagError(f"{flag} is not for --usage, whose answers have their lengths")
    path = given["--usage"]
    usage = read_usage(path)
    is_whole = ~(usage.ended_by(Ending.ABORT) | usage.ended_by(Ending.ERROR))
    kept = usage.of(is_whole & (usage.lengths() > 0) & (usage.prompt_tokens > 0))
    if not len(kept):
        raise ValueError(
            f"--usage {path}: no answer that came to its end tells its prompt_tokens and its "
            "completion_tokens, and a plan needs both"
        )
    demand = Demand.of_requests(
        zip(kept.prompt_tokens.tolist(), kept.lengths().tolist(), strict=True)
    )
    declared = _declared(given, kept)
    rate = _rate(usage.at_s)
    if "--rate" in given:
        rate = number_of(given, "--rate", 1.0, 1e-6, 1e6)
    return replace(demand, declared=declared), rate, tuple(_notes(usage, kept))


def _declared(given: Mapping[str, str], kept: Usage) -> Declared:
    """What the flag says; else what all answers say alike."""
    if "--max-tokens" in given:
        return parse_declared(given["--max-tokens"])
    said = np.unique(kept.max_tokens)
    if len(said) == 1 and said[0] != UNSAID:
        return Declared(constant=int(said[0]))
    return NOT_DECLARED


def _rate(at_s: NDArray[np.float64]) -> float | None:
    """Answers a second, of those that have a time."""
    known = at_s[np.isfinite(at_s)]
    span_s = float(np.ptp(known)) if len(known) > 1 else 0.0
    return (len(known) - 1) / span_s if span_s else None


def _notes(usage: Usage, kept: Usage) -> Iterable[str]:
    if left_out := len(usage) - len(kept):
        yield (
            f"{left_out:,} of {len(usage):,} answers are left out: broken off, empty, or without "
            "prompt_tokens"
        )
    if len(kept) < _ENOUGH:
        yield f"{len(kept):,} answers are few: their longest weigh much in these figures"
    if num_cut := int(kept.ended_by(Ending.LENGTH).sum()):
        yield (
            f"{num_cut:,} of {len(kept):,} answers were cut off at a limit, and count as long as "
            "they became"
        )
    known = kept.cached_tokens != UNSAID
    if found := int(kept.cached_tokens[known].sum()):
        share = found / int(kept.prompt_tokens[known].sum())
        yield f"the prefix cache found {share:.0%} of their prompt tokens, which is not counted"
