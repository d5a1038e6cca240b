"""Which knobs change nothing here: each is changed, and the run is made again to see.

Two runs are the same when their steps are, one by one (who computes how much, with how much behind
it), and when every request was admitted, answered and ended at the same time in both.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from headway.core.config import KV_POLICIES, ORDERINGS, PREFILLS, UNITS, VICTIMS, SchedulerConfig
from headway.core.policies.shortest import USUAL_AGEING
from headway.simulator.binding import Binding
from headway.simulator.config import Setup, engine_name
from headway.simulator.result import Result
from headway.simulator.same import Expected, NotTheSame, first_different_step
from headway.simulator.step_time.base import StepShape

POOL = "num_blocks"
_CHECK_EVERY = 256  # steps between two looks at the clock


@dataclass(frozen=True, slots=True)
class Trial:
    """Another value, and the first step that computed something else; None: it changed nothing.

    Where all steps compute the same and only some request fared otherwise, a step behind the last.
    `cut_after`: the time was up after so many equal steps, and nothing is known.
    """

    value: Any
    differs_at: int | None = None
    cut_after: int | None = None

    @property
    def is_same(self) -> bool:
        return self.differs_at is None and self.cut_after is None


@dataclass(frozen=True, slots=True)
class KnobReport:
    """A knob, by its engine's name, and what other values of it did."""

    knob: str
    value: Any
    trials: tuple[Trial, ...]

    @property
    def is_inert(self) -> bool:
        return all(trial.is_same for trial in self.trials)

    @property
    def same_values(self) -> tuple[Any, ...]:
        """All that decide the same, the run's own among them."""
        same = [self.value, *(trial.value for trial in self.trials if trial.is_same)]
        is_ordered = all(isinstance(v, int | float) and not isinstance(v, bool) for v in same)
        return tuple(sorted(same)) if is_ordered else tuple(same)

    @property
    def other_values(self) -> tuple[Any, ...]:
        """All that decide otherwise."""
        return tuple(t.value for t in self.trials if t.differs_at is not None)

    @property
    def unknown_values(self) -> tuple[Any, ...]:
        """All that there was not enough time for."""
        return tuple(t.value for t in self.trials if t.cut_after is not None)


@dataclass(frozen=True, slots=True)
class InertReport:
    """`binding`: what the run was short of."""

    knobs: tuple[KnobReport, ...]
    binding: Binding

    @property
    def inert(self) -> tuple[KnobReport, ...]:
        return tuple(report for report in self.knobs if report.is_inert)

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return dataclasses.asdict(self)


def inert_knobs(setup: Setup, result: Result, *, seconds: float = 10.0) -> InertReport:
    """Run `setup`, whose `result` is known, with each knob changed.

    A run stops at the first step that differs. All of them together take `seconds` at most: what is
    left is divided evenly among the values to come, and a run that takes longer is cut.
    """
    deadline = time.monotonic() + seconds
    tried = [(knob, value, other) for knob, v in _variants(setup, result) for value, other in v]
    trials: dict[str, list[Trial]] = {}
    for number, (knob, value, other) in enumerate(tried):
        now = time.monotonic()
        share = max(0.0, deadline - now) / (len(tried) - number)
        trials.setdefault(knob, []).append(_try(value, other, result, now + share))
    reports = [
        KnobReport(
            "num_gpu_blocks_override" if knob == POOL else engine_name(knob),
            setup.num_blocks if knob == POOL else getattr(setup.config, knob),
            tuple(found),
        )
        for knob, found in trials.items()
    ]
    return InertReport(tuple(reports), Binding.of(result))


# ---- Variants ----


def _variants(setup: Setup, result: Result) -> Iterator[tuple[str, list[tuple[Any, Setup]]]]:
    """Each knob with the values that are tried; those that cannot be are left out."""
    config = setup.config
    peak = int(result.steps["num_running"].max(initial=0))
    halves = {name: _around(getattr(config, name)) for name in _SIZES}
    if 0 < peak < config.max_num_seqs:
        halves["max_num_seqs"] = sorted({peak, *halves["max_num_seqs"]} - {config.max_num_seqs})
    for knob, values in halves.items():
        yield knob, _changed(setup, knob, values)
    yield POOL, [(n, dataclasses.replace(setup, num_blocks=n)) for n in _around(setup.num_blocks)]
    threshold, budget = config.long_prefill_token_threshold, config.max_num_batched_tokens
    thresholds = [0, *_around(threshold)] if threshold else [max(1, budget // 4)]
    yield (
        "long_prefill_token_threshold",
        _changed(setup, "long_prefill_token_threshold", thresholds),
    )
    target, most = config.target_itl_ms, config.max_num_partial_prefills
    if target:
        yield "target_itl_ms", _changed(setup, "target_itl_ms", [0.0, target / 2, target * 2])
    if target or most > 1:
        knob = "max_num_partial_prefills"
        yield knob, _changed(setup, knob, [1, 2 * most or 16])
    watermarks = [0.0, min(0.99, 2 * config.watermark)] if config.watermark else [0.01]
    yield "watermark", _changed(setup, "watermark", watermarks)
    passing = [0, 2 * config.skip_blocked_ms] if config.skip_blocked_ms else [1000]
    yield "skip_blocked_ms", _changed(setup, "skip_blocked_ms", passing)
    if config.kv_policy == "predict":
        yield "kv_risk", _changed(setup, "kv_risk", [config.kv_risk / 2, config.kv_risk * 2])
    for knob in _SWITCHES:
        yield knob, _changed(setup, knob, [not getattr(config, knob)])
    for knob, choices in _CHOICES.items():
        others = [choice for choice in choices if choice != getattr(config, knob)]
        yield knob, _changed(setup, knob, others)
    usual_victim = _USUAL_VICTIM.get(config.ordering, "newest")
    victim = usual_victim if config.victim == "auto" else config.victim
    yield "victim", _changed(setup, "victim", [v for v in VICTIMS if v not in ("auto", victim)])
    if config.ordering == "sjf":
        ageing = USUAL_AGEING if config.ageing_tokens_per_s is None else config.ageing_tokens_per_s
        yield "ageing_tokens_per_s", _changed(setup, "ageing_tokens_per_s", [0, *_around(ageing)])


_SIZES = ("max_num_seqs", "max_num_batched_tokens", "max_model_len")
_SWITCHES = ("enable_prefix_caching", "enable_chunked_prefill", "reserve_full_isl")
_CHOICES = {
    "kv_policy": KV_POLICIES,
    "unit": UNITS,
    "prefill": PREFILLS,
    "ordering": ORDERINGS,
}
_USUAL_VICTIM = {"priority": "lowest-priority", "fair": "most-served"}  # what "auto" means


def _around(value: int) -> list[int]:
    return [value // 2, value * 2] if value > 1 else [value * 2]


def _changed(setup: Setup, knob: str, values: list[Any]) -> list[tuple[Any, Setup]]:
    configs = ((value, _replaced(setup.config, knob, value)) for value in values)
    return [(v, dataclasses.replace(setup, config=c)) for v, c in configs if c is not None]


def _replaced(config: SchedulerConfig, knob: str, value: Any) -> SchedulerConfig | None:
    """None for a value that the rest of the configuration does not allow."""
    try:
        return dataclasses.replace(config, **{knob: value})
    except ValueError:
        return None


# ---- Runs that stop where they differ ----


class _OutOfTime(BaseException):
    """Not an Exception: a loop counts those as failed steps."""


class _Watched:
    """A step-time model that compares each step with the known run's, and looks at the clock."""

    def __init__(self, setup: Setup, result: Result, deadline: float) -> None:
        self.expected = Expected(result)
        self._step_ns = setup.model.step_ns
        self.terms_ns = setup.model.terms_ns
        self._deadline = deadline

    def step_ns(self, shape: StepShape) -> int:
        if self.expected.num_steps % _CHECK_EVERY == 0 and time.monotonic() > self._deadline:
            raise _OutOfTime
        self.expected.check(shape)
        return self._step_ns(shape)


def _try(value: Any, setup: Setup, result: Result, deadline: float) -> Trial:
    watched = _Watched(setup, result, deadline)
    try:
        other = dataclasses.replace(setup, model=watched).run()
    except NotTheSame as stopped:
        return Trial(value, differs_at=stopped.step)
    except _OutOfTime:
        return Trial(value, cut_after=watched.expected.num_steps)
    return Trial(value, differs_at=first_different_step(other, result))
