"""What a change would bring, tried: the same traffic under other settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from headway.core.config import KV_POLICIES, SchedulerConfig
from headway.insight.doctor.findings import Change, Wall
from headway.insight.figures import number, seconds
from headway.simulator.config import Setup
from headway.simulator.inert import inert_knobs
from headway.simulator.result import Result, Summary

_LEAST_GAIN = 0.02
_MOST_TOLD = 3
_SECONDS = 10.0  # for the search for what changes nothing


@dataclass(frozen=True, slots=True)
class _Tried:
    flag: str
    before: str
    after: str
    setup: Setup


class Trials:
    """Runs of the simulator; `setup` is the run as it was, `error` a clause on how well its step
    times are known."""

    def __init__(self, setup: Setup, error: str) -> None:
        self._setup = setup
        self._error = error
        self._result: Result | None = None

    def changes_for(self, wall: Wall) -> tuple[Change, ...]:
        """Those that make a difference, best first; where none does, the best that was tried."""
        variants = list(_variants(self._setup, wall))
        if not variants:
            return ()
        before = self._base().summary()
        tried: dict[tuple[str, str], tuple[_Tried, Summary]] = {}
        for variant in variants:
            if after := _summary(variant.setup):  # of values that bring the same, the first
                tried.setdefault((variant.flag, _gain(before, after)), (variant, after))
        ranked = sorted(tried.values(), key=lambda entry: -_score(before, entry[1]))
        helping = [entry for entry in ranked if _score(before, entry[1]) >= _LEAST_GAIN]
        told = helping[:_MOST_TOLD] or ranked[:1]
        return tuple(self._change(before, variant, after) for variant, after in told)

    def inert(self) -> tuple[str, ...]:
        """Settings whose other values decide the same, step by step."""
        report = inert_knobs(self._setup, self._base(), seconds=_SECONDS)
        return tuple(
            f"{knob.knob}: {', '.join(map(_word, knob.same_values))} decide the same, step by step"
            for knob in report.inert
        )

    def _base(self) -> Result:
        if self._result is None:
            self._result = self._setup.run()
        return self._result

    def _change(self, before: Summary, tried: _Tried, after: Summary) -> Change:
        return Change(
            what=tried.flag,
            before=tried.before,
            after=tried.after,
            gain=_gain(before, after),
            basis=f"simulated, with the same traffic; {self._error}",
        )


def _variants(setup: Setup, wall: Wall) -> Iterator[_Tried]:
    config = setup.config
    slots, budget = config.max_num_seqs, config.max_num_batched_tokens
    match wall:
        case Wall.SLOTS:
            for times in (2, 4, 8):
                yield from _with(setup, "--max-num-seqs", slots, max_num_seqs=times * slots)
        case Wall.KV_MEMORY:
            yield from _against_memory(setup)
        case Wall.PREFILL:
            flag = "--max-num-batched-tokens"
            for times in (2, 4):
                yield from _with(setup, flag, budget, max_num_batched_tokens=times * budget)
        case Wall.TENANT:
            mine = config.max_tenant_seqs
            yield from _with(setup, "--max-tenant-seqs", mine, max_tenant_seqs=slots)
        case Wall.STATIC_BATCH:
            yield from _with(setup, "--batching-unit", config.unit, unit="step")


def _against_memory(setup: Setup) -> Iterator[_Tried]:
    config = setup.config
    for times in (2, 4):
        number = times * setup.num_blocks
        yield _Tried(
            "--kv-cache-memory-bytes",
            f"{setup.num_blocks * config.block_size:,} tokens",
            f"{number * config.block_size:,} tokens",
            dataclasses.replace(setup, num_blocks=number),
        )
    for policy in KV_POLICIES:
        if policy != config.kv_policy:
            yield from _with(setup, "--kv-policy", config.kv_policy, kv_policy=policy)
    slots = config.max_num_seqs
    for share in (2, 4):
        if slots // share:
            yield from _with(setup, "--max-num-seqs", slots, max_num_seqs=slots // share)


def _with(setup: Setup, flag: str, before: object, **change: Any) -> Iterator[_Tried]:
    """Nothing for a value that the rest of the configuration does not allow."""
    try:
        config: SchedulerConfig = dataclasses.replace(setup.config, **change)
    except ValueError:
        return
    after = next(iter(change.values()))
    yield _Tried(flag, _word(before), _word(after), dataclasses.replace(setup, config=config))


def _summary(setup: Setup) -> Summary | None:
    """None where a run has no figures: it refuses everybody."""
    summary = setup.run().summary()
    return summary if summary.num_finished else None


def _figures(summary: Summary) -> Mapping[str, float]:
    return {
        "output tokens/s": summary.output_tokens_per_second,
        "a request's time, mean": summary.e2e_s.mean,
        "first token, mean": summary.ttft_s.mean,
    }


def _score(before: Summary, after: Summary) -> float:
    """By how much more is done, or a request is done earlier; less than nothing for a loss.

    Mean times compare only where as many finish, which those who leave may change.
    """
    old, new = before.output_tokens_per_second, after.output_tokens_per_second
    more = new / old - 1 if old else 0.0
    if more < -_LEAST_GAIN or after.num_finished < before.num_finished:
        return min(more, 0.0)
    if after.num_finished > before.num_finished or not before.e2e_s.mean:
        return more
    return max(more, 1 - after.e2e_s.mean / before.e2e_s.mean)


def _gain(before: Summary, after: Summary) -> str:
    parts = [] if _score(before, after) >= _LEAST_GAIN else ["next to nothing"]
    for name, old in _figures(before).items():
        new = _figures(after)[name]
        show = number if name.endswith("/s") else seconds
        parts.append(f"{name} {show(old)} to {show(new)}")
    if before.num_preemptions or after.num_preemptions:
        parts.append(f"preemptions {before.num_preemptions:,} to {after.num_preemptions:,}")
    return "; ".join(parts)


def _word(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return f"{value:,}" if isinstance(value, int) else str(value)
