"""The figures of a load: times at percentiles, rates, goodput, and what did not end well."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headway.bench.outcome import Outcome
from headway.bench.tally import SECOND, Tally
from headway.bench.watch import ClientFigures, Watch

Values = npt.NDArray[np.float64]
TIMES = ("ttft", "tpot", "itl", "e2el")
GOOD_SHARE = 0.9  # of the requests, which have to meet the objectives for a rate to be a good one


@dataclass(frozen=True, slots=True)
class Distribution:
    """All values of one time, in seconds, in order."""

    ordered: Values

    @staticmethod
    def of(values: Sequence[float] | Values) -> Distribution:
        return Distribution(np.sort(np.asarray(values, np.float64)))

    def at(self, percent: float) -> float:
        """The least value that so many percent do not exceed; NaN where there are none."""
        if not len(self.ordered):
            return math.nan
        rank = math.ceil(round(len(self.ordered) * percent / 100, 9))
        return float(self.ordered[max(rank, 1) - 1])

    @property
    def mean(self) -> float:
        return float(self.ordered.mean()) if len(self.ordered) else math.nan

    @property
    def deviation(self) -> float:
        return float(self.ordered.std()) if len(self.ordered) else math.nan


@dataclass(frozen=True, slots=True)
class Objectives:
    """The longest that a request's times may be, in seconds by name: ttft, tpot, e2el."""

    limits_s: tuple[tuple[str, float], ...] = ()

    def are_met(self, outcome: Outcome) -> bool:
        """By a request that was served; one token alone has no TPOT to miss."""
        return outcome.is_served and all(
            _time_s(outcome, name) <= limit_s for name, limit_s in self.limits_s
        )


def _time_s(outcome: Outcome, name: str) -> float:
    match name:
        case "ttft":
            return outcome.ttft_ns() / SECOND
        case "tpot":
            return (outcome.tpot_ns() or 0.0) / SECOND
        case _:
            return outcome.e2e_ns() / SECOND


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Of one load. Rates are per second of `duration_s`, from the first arrival to the last end.

    `arrivals_s`: from the first arrival to the last; `steady_tokens_per_second` counts what came
    within it. `times` are of served requests: `itl` of all gaps between two events with text, the
    others of requests. `num_good` is None without objectives.
    """

    num_requests: int  # that were due
    endings: dict[str, int]
    messages: dict[str, str]  # of each bad ending, what was said first
    duration_s: float
    arrivals_s: float
    drain_s: float
    num_served: int
    num_prompt_tokens: int
    num_output_tokens: int
    num_asked_tokens: int  # of outputs of served requests
    num_events: int
    num_good: int | None
    peak_open: int
    steady_tokens_per_second: float
    is_usage_known: bool
    is_cut: bool
    times: dict[str, Distribution]
    client: ClientFigures
    beginning_e2e_s: float  # the median of the first third

    @property
    def requests_per_second(self) -> float:
        return _per(self.num_served, self.duration_s)

    @property
    def output_tokens_per_second(self) -> float:
        return _per(self.num_output_tokens, self.duration_s)

    @property
    def prompt_tokens_per_second(self) -> float:
        return _per(self.num_prompt_tokens, self.duration_s)

    @property
    def good_per_second(self) -> float:
        return math.nan if self.num_good is None else _per(self.num_good, self.duration_s)

    @property
    def good_share(self) -> float:
        """Of all requests that were due."""
        return math.nan if self.num_good is None else _per(self.num_good, self.num_requests)

    @property
    def kept_up_share(self) -> float:
        """1 where the last answers came as soon as the first ones did, less where a queue grew."""
        behind_s = max(0.0, self.drain_s - self.beginning_e2e_s)
        return _per(self.arrivals_s, self.arrivals_s + behind_s) if self.num_served else 0.0

    def complaints(self) -> list[str]:
        """What about the client makes these figures worthless; none if all is well."""
        return self.client.complaints(self.times["ttft"].at, self.times["itl"].at)


def figures_of(
    tally: Tally, watch: Watch, objectives: Objectives | None = None, num_due: int | None = None
) -> Figures:
    """`num_due`: how many requests the workload had, where the run was cut off before."""
    outcomes = sorted(tally.outcomes, key=lambda outcome: outcome.intended_ns)
    served = [outcome for outcome in outcomes if outcome.is_served]
    first_ns = outcomes[0].intended_ns if outcomes else 0
    endings = Counter(outcome.label for outcome in outcomes)
    if num_due is not None and num_due > len(outcomes):
        endings["not sent before the end"] = num_due - len(outcomes)
    bad = [outcome for outcome in reversed(outcomes) if not outcome.is_served and outcome.message]
    return Figures(
        num_requests=sum(endings.values()),
        endings=dict(endings),
        messages={outcome.label: outcome.message for outcome in bad},
        duration_s=max(0, tally.ended_ns - first_ns) / SECOND,
        arrivals_s=max(0, tally.last_arrival_ns - first_ns) / SECOND,
        drain_s=tally.drain_ns / SECOND,
        num_served=len(served),
        num_prompt_tokens=sum(outcome.num_prompt_tokens for outcome in served),
        num_output_tokens=sum(outcome.num_output_tokens for outcome in served),
        num_asked_tokens=sum(outcome.asked_output_tokens for outcome in served),
        num_events=sum(len(outcome.times_ns) for outcome in served),
        num_good=None if objectives is None else sum(map(objectives.are_met, outcomes)),
        peak_open=_peak_open(outcomes),
        steady_tokens_per_second=_steady(served, first_ns, tally.last_arrival_ns),
        is_usage_known=all(outcome.is_usage_known for outcome in served),
        is_cut=tally.is_cut,
        times=_times(served),
        client=ClientFigures.of(watch, outcomes),
        beginning_e2e_s=_beginning(served),
    )


def _times(served: Sequence[Outcome]) -> dict[str, Distribution]:
    gaps = [outcome.gaps_ns() for outcome in served]
    tpots = [tpot for outcome in served if (tpot := outcome.tpot_ns()) is not None]
    times_ns = {
        "ttft": np.array([outcome.ttft_ns() for outcome in served]),
        "tpot": np.array(tpots),
        "itl": np.concatenate(gaps) if gaps else np.array([]),
        "e2el": np.array([outcome.e2e_ns() for outcome in served]),
    }
    return {name: Distribution.of(values / SECOND) for name, values in times_ns.items()}


def _beginning(served: Sequence[Outcome]) -> float:
    third = [outcome.e2e_ns() / SECOND for outcome in served[: max(1, len(served) // 3)]]
    return Distribution.of(third).at(50)


def _steady(served: Sequence[Outcome], first_ns: int, last_ns: int) -> float:
    """Tokens that came while requests still arrived; an event has its share of its request's."""
    if last_ns <= first_ns:
        return math.nan
    total = 0.0
    for outcome in served:
        times = np.frombuffer(outcome.times_ns, np.int64)
        share = np.searchsorted(times, last_ns, side="right") / len(times)
        total += float(share) * outcome.num_output_tokens
    return total * SECOND / (last_ns - first_ns)


def _peak_open(outcomes: Sequence[Outcome]) -> int:
    """The most that had been sent and had not ended; who ends makes room before who comes."""
    sent = [outcome for outcome in outcomes if outcome.sent_ns]
    changes = [(outcome.sent_ns, 1) for outcome in sent]
    changes += [(outcome.ended_ns, -1) for outcome in sent]
    peak = count = 0
    for _, change in sorted(changes):
        count += change
        peak = max(peak, count)
    return peak


def _per(amount: float, base: float) -> float:
    return amount / base if base > 0 else 0.0
