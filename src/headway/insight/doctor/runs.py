"""A run of the scheduler, recorded or simulated, as readings: what it says of itself is exact."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from headway.insight.doctor.findings import Change, Finding, Severity
from headway.insight.doctor.readings import Distribution, Observation, Reading
from headway.simulator.collector import NEVER
from headway.simulator.result import Column, Result

_NUM_WINDOWS = 20
_GRID = (0.0, *np.geomspace(1e-4, 1e5, 400).tolist(), float("inf"))
_ENDLESS = 5.0  # times as long as half of those that ended held a slot


def observe_run(result: Result, source: str) -> Observation:
    """Readings of equal lengths of time. Raises ValueError for a run without a step."""
    if not len(result.steps["end_ns"]):
        raise ValueError(f"{source}: there is no step in it")
    edges = np.linspace(
        result.steps["start_ns"].min(), result.steps["end_ns"].max(), _NUM_WINDOWS + 1
    )
    readings = [_Window(result, *edges[i : i + 2]).reading() for i in range(_NUM_WINDOWS)]
    # Times and lengths are of the whole run: they come once, with its end.
    readings[-1] = _with_distributions(readings[-1], result)
    return Observation(
        source=source,
        server="headway",
        readings=tuple(readings),
        findings=tuple(_endless(result)),
    )


class _Window:
    """The steps and sequences of one stretch of time."""

    def __init__(self, result: Result, begin_ns: float, end_ns: float) -> None:
        self._result = result
        self._begin_ns, self._end_ns = begin_ns, end_ns
        starts, ends = result.steps["start_ns"], result.steps["end_ns"]
        self._inside = np.clip(np.minimum(ends, end_ns) - np.maximum(starts, begin_ns), 0, None)
        self._span_ns = max(1.0, end_ns - begin_ns)
        # In whole steps: each is of the window in which it ended.
        self._ended_here = self._is_in(ends)

    def reading(self) -> Reading:
        result, steps = self._result, self._result.steps
        config, sequences = result.config, result.sequences
        rows = self._is_in(sequences["first_token_ns"])
        return Reading(
            at_s=self._end_ns / 1e9,
            interval_s=self._span_ns / 1e9,
            num_running=self._mean(steps["num_running"]),
            num_waiting=self._mean(steps["num_waiting"]),
            waiting_for=self._waiting_for(),
            kv_usage=self._mean(steps["num_held_blocks"]) / result.num_blocks,
            max_num_seqs=config.max_num_seqs,
            max_num_batched_tokens=config.max_num_batched_tokens,
            max_model_len=config.max_model_len,
            num_kv_tokens=result.num_blocks * config.block_size,
            reserves=config.kv_policy == "reserve",
            num_engines=1,
            num_prompt_tokens=float(sequences["num_prompt_tokens"][rows].sum()),
            num_cached_tokens=float(sequences["num_cached_tokens"][rows].sum()),
            num_output_tokens=self._sum(steps["num_samples"]),
            num_preemptions=self._sum(steps["num_preempted"]),
            num_recomputed_tokens=self._recomputed(),
            num_steps=float(self._ended_here.sum()),
            busy_s=float(self._inside.sum()) / 1e9,
            ended=self._ended(),
        )

    def _is_in(self, times_ns: Column) -> Column:
        return (times_ns > self._begin_ns) & (times_ns <= self._end_ns)

    def _mean(self, column: Column) -> float:
        """Over time; between steps there is nobody."""
        return float((column * self._inside).sum() / self._span_ns)

    def _sum(self, column: Column) -> float:
        return float(column[self._ended_here].sum())

    def _waiting_for(self) -> dict[str, float]:
        blockers, waiting = self._result.steps["blocker"], self._result.steps["num_waiting"]
        named = {str(word) for word in blockers[(self._inside > 0) & (waiting > 0)] if word}
        return {word: self._mean(waiting * (blockers == word)) for word in sorted(named)}

    def _recomputed(self) -> float:
        """By the share of all preemptions that were in this window: nobody notes when."""
        total = float(self._result.steps["num_preempted"].sum())
        again = float(self._result.sequences["num_recomputed_tokens"].sum())
        return again * self._sum(self._result.steps["num_preempted"]) / total if total else 0.0

    def _ended(self) -> dict[str, float]:
        sequences = self._result.sequences
        reasons = sequences["reason"][self._is_in(sequences["ended_ns"])]
        words, counts = np.unique(reasons.astype(str), return_counts=True)
        return {str(word): float(n) for word, n in zip(words, counts, strict=True) if word}


def _with_distributions(reading: Reading, result: Result) -> Reading:
    sequences = result.sequences
    has_first = sequences["first_token_ns"] != NEVER
    has_ended = has_first & (sequences["ended_ns"] != NEVER)
    first_ns, admitted_ns = sequences["first_token_ns"], sequences["admitted_ns"]
    last_ns = result.steps["end_ns"][sequences["last_step"]]  # of those that got a token
    parts: dict[str, Any] = {
        "ttft_s": _distribution(result.ttft_s()),
        "queue_s": _distribution(result.queue_s()),
        "e2e_s": _distribution(result.e2e_s()),
        "itl_s": _distribution(*result.itl_s()),
        "prefill_s": _distribution((first_ns - admitted_ns)[has_first] / 1e9),
        "decode_s": _distribution((last_ns - first_ns)[has_first] / 1e9),
        "prompt_tokens": _distribution(sequences["num_prompt_tokens"]),
        "output_tokens": _distribution(sequences["num_output_tokens"][has_ended]),
    }
    return dataclasses.replace(reading, **parts)


def _distribution(values: Column, weights: Column | None = None) -> Distribution:
    weights = np.ones(len(values)) if weights is None else weights
    counts, _ = np.histogram(values, bins=_GRID, weights=weights)
    return Distribution(
        float(weights.sum()),
        float((values * weights).sum()),
        _GRID[1:],
        tuple(np.cumsum(counts).tolist()),
    )


def _endless(result: Result) -> list[Finding]:
    """Sequences that hold a slot far longer than others do, while somebody waits."""
    sequences, steps = result.sequences, result.steps
    last_ns = steps["end_ns"].max()
    ended_ns = np.where(sequences["ended_ns"] == NEVER, last_ns, sequences["ended_ns"])
    is_admitted = sequences["admitted_ns"] != NEVER
    held_ns = np.where(is_admitted, ended_ns - sequences["admitted_ns"], 0)
    has_ended = is_admitted & (sequences["ended_ns"] != NEVER)
    usual_ns = float(np.median(held_ns[has_ended])) if has_ended.any() else 0.0
    span_ns = float(last_ns - steps["start_ns"].min())
    found = []
    for row in np.argsort(-held_ns, kind="stable")[:3]:
        during = (steps["end_ns"] > sequences["admitted_ns"][row]) & (
            steps["end_ns"] <= ended_ns[row]
        )
        waiting = steps["num_waiting"][during]
        crowded = float((waiting > 0).mean()) if len(waiting) else 0.0
        slots = min(result.config.max_num_seqs, int(steps["num_running"].max(initial=1)))
        is_long = held_ns[row] >= max(0.4 * span_ns, _ENDLESS * usual_ns)
        if is_long and crowded >= 0.5 and slots <= 8:
            found.append(_held_by(result, int(row), held_ns[row] / 1e9, waiting, slots))
    return found


def _held_by(result: Result, row: int, held_s: float, waiting: Column, slots: int) -> Finding:
    name = result.sequences["request_id"][row]
    tokens = result.sequences["num_output_tokens"][row]
    state = "and has not ended" if result.sequences["ended_ns"][row] == NEVER else "and ended"
    return Finding(
        kind="slots-held",
        severity=Severity.CRITICAL if slots == 1 else Severity.WARNING,
        title=f"Request {name} holds one of {slots} slots while others wait.",
        evidence=(
            f"it had a slot for {held_s:,.1f} s {state}, and got {tokens:,} tokens",
            f"{waiting.mean():,.1f} waited meanwhile on average, {waiting.max():,} at most",
        ),
        changes=(
            Change(what="--max-request-seconds", after="the longest that a request may run"),
            Change(what="--scheduling-policy", before=result.config.ordering, after="fair or sjf"),
        ),
        subject=str(name),
    )
