"""Readings put together: what happened between two, of several engines, and over time."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from headway.insight.doctor.readings import Distribution, Reading

STATES = (
    *("num_running", "num_waiting", "num_deferred", "num_resident_tokens"),
    *("num_reserved_tokens", "num_backlog_tokens"),
)
COUNTS = (
    *("num_prompt_tokens", "num_cached_tokens", "num_output_tokens", "num_preemptions"),
    *("num_recomputed_tokens", "num_steps", "busy_s", "prefill_busy_s", "decode_busy_s"),
    "num_refused",
)
TALLIES = ("ended", "evicted")
DISTRIBUTIONS = (
    *("ttft_s", "itl_s", "queue_s", "prefill_s", "decode_s", "e2e_s"),
    *("prompt_tokens", "output_tokens", "max_tokens", "step_tokens"),
)
SUMMED_SETTINGS = ("max_num_seqs", "num_kv_tokens")
LARGEST_SETTINGS = ("max_num_batched_tokens", "max_model_len", "max_loras")
_NAMES = ("adapters_running", "adapters_waiting")


def between(before: Reading, now: Reading) -> Reading:
    """What `now` tells, with counts since `before` in place of those since the server's start.

    Both are of one engine. Where any count fell it has started again in between.
    """
    counts: dict[str, Any] = {n: _less(getattr(now, n), getattr(before, n)) for n in COUNTS}
    tallies: dict[str, Any] = {
        name: _tally_less(getattr(now, name), getattr(before, name)) for name in TALLIES
    }
    by_model = {
        model: _tally_less(tally, (before.ended_by_model or {}).get(model, {})) or {}
        for model, tally in (now.ended_by_model or {}).items()
    }
    parts: dict[str, Any] = {
        n: distribution_less(getattr(now, n), getattr(before, n)) for n in DISTRIBUTIONS
    }
    elapsed_s = None if now.at_s is None or before.at_s is None else now.at_s - before.at_s
    figures = [value for value in counts.values() if value is not None]
    figures += [part.count for part in parts.values() if part is not None]
    if any(figure < 0 for figure in figures):
        cleared: dict[str, Any] = dict.fromkeys(
            (*COUNTS, *TALLIES, *DISTRIBUTIONS, "ended_by_model")
        )
        return dataclasses.replace(
            now, interval_s=elapsed_s, since_start=False, restarted=True, **cleared
        )
    return dataclasses.replace(
        now,
        interval_s=elapsed_s,
        since_start=False,
        ended_by_model=by_model or None,
        **counts,
        **tallies,
        **parts,
    )


def state_of(reading: Reading) -> Reading:
    """The state and the settings alone."""
    cleared: dict[str, Any] = dict.fromkeys(
        (*COUNTS, *TALLIES, *DISTRIBUTIONS, "ended_by_model", "interval_s")
    )
    return dataclasses.replace(reading, since_start=False, **cleared)


def of_all_engines(readings: Sequence[Reading]) -> Reading:
    """Engines at one moment: states summed, the KV cache's use averaged by its size."""
    restarted = any(reading.restarted for reading in readings)
    sums: dict[str, Any] = {
        n: _sum(getattr(r, n) for r in readings) for n in (*STATES, *SUMMED_SETTINGS)
    }
    counts: dict[str, Any] = dict.fromkeys((*COUNTS, *TALLIES, *DISTRIBUTIONS, "ended_by_model"))
    if not restarted:
        counts = _added(readings)
    settings: dict[str, Any] = {
        **{n: _largest(getattr(r, n) for r in readings) for n in LARGEST_SETTINGS},
        **{n: _names(getattr(r, n) for r in readings) for n in _NAMES},
    }
    healthy = [r.is_healthy for r in readings if r.is_healthy is not None]
    return dataclasses.replace(
        readings[0],
        restarted=restarted,
        num_engines=len(readings),
        kv_usage=_weighted(readings),
        is_healthy=all(healthy) if healthy else None,
        waiting_for=_tally_sum(r.waiting_for for r in readings),
        **settings,
        **sums,
        **counts,
    )


def over_time(readings: Sequence[Reading]) -> Reading:
    """One reading of consecutive ones: mean states, counts added, the last one's settings."""
    means: dict[str, Any] = {
        n: mean(getattr(r, n) for r in readings) for n in (*STATES, "kv_usage")
    }
    tallies = [r.waiting_for for r in readings if r.waiting_for is not None]
    waiting_for = _tally_sum(tallies)
    if waiting_for is not None:
        waiting_for = {name: value / len(tallies) for name, value in waiting_for.items()}
    return dataclasses.replace(
        readings[-1],
        interval_s=_sum(r.interval_s for r in readings),
        restarted=any(r.restarted for r in readings),
        waiting_for=waiting_for,
        **means,
        **_added(readings),
    )


def mean(values: Iterable[float | None]) -> float | None:
    """Of those that are there."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def distribution_less(now: Distribution | None, before: Distribution | None) -> Distribution | None:
    """What came on top; buckets only where both have the same."""
    if now is None or before is None:
        return now if before is None else None
    has_same = now.bounds == before.bounds
    counts = (
        tuple(a - b for a, b in zip(now.counts, before.counts, strict=True)) if has_same else ()
    )
    bounds = now.bounds if has_same else ()
    return Distribution(now.count - before.count, now.total - before.total, bounds, counts)


def distributions_added(parts: Iterable[Distribution | None]) -> Distribution | None:
    """All together; buckets only where all have the same."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    has_same = len({part.bounds for part in known}) == 1
    columns = zip(*(part.counts for part in known), strict=True) if has_same else ()
    return Distribution(
        sum(part.count for part in known),
        sum(part.total for part in known),
        known[0].bounds if has_same else (),
        tuple(sum(column) for column in columns),
    )


def _added(readings: Sequence[Reading]) -> dict[str, Any]:
    by_model: dict[str, Mapping[str, float]] = {}
    for reading in readings:
        for model, tally in (reading.ended_by_model or {}).items():
            by_model[model] = _tally_sum((by_model.get(model), tally)) or {}
    return {
        **{n: _sum(getattr(r, n) for r in readings) for n in COUNTS},
        **{n: _tally_sum(getattr(r, n) for r in readings) for n in TALLIES},
        **{n: distributions_added(getattr(r, n) for r in readings) for n in DISTRIBUTIONS},
        "ended_by_model": by_model or None,
    }


def _weighted(readings: Sequence[Reading]) -> float | None:
    """By the tokens that each cache holds; all alike where one does not tell."""
    known = [r for r in readings if r.kv_usage is not None]
    if not known:
        return None
    sizes = [r.num_kv_tokens or 0 for r in known]
    weights = sizes if all(sizes) else [1] * len(known)
    return sum((r.kv_usage or 0) * w for r, w in zip(known, weights, strict=True)) / sum(weights)


def _reduced(values: Iterable[Any], reduce: Callable[[list[Any]], Any]) -> Any:
    known = [value for value in values if value is not None]
    return reduce(known) if known else None


def _sum(values: Iterable[Any]) -> Any:
    return _reduced(values, sum)


def _largest(values: Iterable[Any]) -> Any:
    return _reduced(values, max)


def _names(values: Iterable[tuple[str, ...] | None]) -> tuple[str, ...] | None:
    return _reduced(values, lambda known: tuple(sorted({n for names in known for n in names})))


def _less(now: float | None, before: float | None) -> float | None:
    """None where it was not told before: whoever counts from then on is not known."""
    return None if now is None or before is None else now - before


def _tally_less(
    now: Mapping[str, float] | None, before: Mapping[str, float] | None
) -> dict[str, float] | None:
    """A value that appears is new: it was 0, since its siblings were told."""
    if now is None or before is None:
        return None
    return {name: value - before.get(name, 0.0) for name, value in now.items()}


def _tally_sum(tallies: Iterable[Mapping[str, float] | None]) -> dict[str, float] | None:
    known = [tally for tally in tallies if tally is not None]
    total: dict[str, float] = {}
    for tally in known:
        for name, value in tally.items():
            total[name] = total.get(name, 0.0) + value
    return total if known else None
