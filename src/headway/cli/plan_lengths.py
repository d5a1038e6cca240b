"""The lengths, and the rate, that a plan is about, from flags."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from headway.cli.simulated_workload import FILE_FLAGS, WORKLOAD_FLAGS, workload_of
from headway.insight.plan.demand import Demand
from headway.simulator.workload.arrivals import Renewal
from headway.simulator.workload.describe import describe
from headway.simulator.workload.synthetic import Synthetic

if TYPE_CHECKING:
    from headway.simulator.workload.base import Workload

_LAWS = ("rate", "arrivals", "requests", "prompt_tokens", "output_tokens", "max_tokens", "seed")
_TURNS = ("turns", "later_prompt_tokens", "prefixes", "prefix_tokens", "prefix_share", "first")
WORKLOAD_FLAGS_READ = (
    *FILE_FLAGS,
    "--usage",
    *(flag for flag, field in WORKLOAD_FLAGS.items() if field in (*_LAWS, *_TURNS)),
)
_ASSUMED = {
    "prompt_tokens": "lognormal:1000:0.8:32-8192",
    "output_tokens": "lognormal:250:0.8:8-2048",
}
_MOST_REQUESTS = 100_000  # of a file that are read
_DRAWN = 20_000  # where lengths follow from turns and prefixes


def demand_of(own: Mapping[str, str]) -> tuple[Demand, float | None, tuple[str, ...]]:
    """With the rate, where one is given, and what to know of it."""
    given = {flag: own[flag] for flag in WORKLOAD_FLAGS_READ if flag in own}
    if "--usage" in given:
        from headway.cli.plan_usage import demand_of_usage

        return demand_of_usage(given)
    is_whole = "--workload" in given or "--trace" in given
    notes: tuple[str, ...] = ()
    if not is_whole:
        for field, law in _ASSUMED.items():
            flag = f"--{field.replace('_', '-')}"
            if flag not in given:
                given[flag] = law
                notes += (f"no {flag} is given: {law} is assumed",)
        if "--rate" not in given and "--arrivals" not in given:
            given["--arrivals"] = "at-once"
        given.setdefault("--requests", str(_DRAWN))
    workload, spec = workload_of(given, 0)
    demand = _lengths_of(workload)
    rate = _rate(workload, spec, is_whole=is_whole)
    return demand, rate, (*notes, *_cache_notes(workload))


def _lengths_of(workload: Workload) -> Demand:
    if isinstance(workload, Synthetic) and _is_plain(workload):
        assert workload.prompt_tokens is not None
        assert workload.output_tokens is not None
        return Demand.of_laws(workload.prompt_tokens, workload.output_tokens, workload.max_tokens)
    requests = islice(workload.traffic().arrivals(), _MOST_REQUESTS)
    return Demand.of_requests(
        (request.num_prompt_tokens, request.output.num_tokens) for request in requests
    )


def _is_plain(workload: Synthetic) -> bool:
    """Lengths are those of the laws."""
    return workload.conversations is None and workload.prefixes is None and workload.turns is None


def _rate(workload: Workload, spec: Mapping[str, Any], *, is_whole: bool) -> float | None:
    if isinstance(workload, Synthetic) and isinstance(workload.arrivals, Renewal):
        return workload.arrivals.rate
    if "trace" in spec and is_whole:
        return describe(workload, _MOST_REQUESTS).rate
    return None


def _cache_notes(workload: Workload) -> tuple[str, ...]:
    if isinstance(workload, Synthetic) and _is_plain(workload):
        return ()
    return ("what the prefix cache would find is not counted",)
