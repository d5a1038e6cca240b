"""What was seen of a server, whichever server it is: the one form that the rules know.

A source (a metrics page, a log, a recording, a usage file) is read by a module of its own, which
returns an `Observation`: readings, oldest first, and findings that only this source can make.
Rules see readings alone. A field that a source does not tell stays None, since absent is not zero;
nothing is guessed here. Counts that began again (a restart) are told by `restarted`, and are then
None.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from headway.insight.doctor.findings import Change, Finding, Wall


@dataclass(frozen=True, slots=True)
class Distribution:
    """Observations within an interval, in cumulative buckets as Prometheus has them.

    `bounds`: upper bounds, rising, the last may be infinity; `counts`: observations up to each.
    Without buckets, both are empty, and only the mean is known.
    """

    count: float
    total: float
    bounds: tuple[float, ...] = ()
    counts: tuple[float, ...] = ()

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count > 0 else None

    def quantile(self, share: float) -> float | None:
        """By straight lines within buckets; the last finite bound for what lies above it."""
        if self.count <= 0 or not self.counts:
            return None
        rank, lower, below = share * self.counts[-1], 0.0, 0.0
        for bound, count in zip(self.bounds, self.counts, strict=True):
            if count >= rank and count > below:
                if math.isinf(bound):
                    return lower
                return lower + (bound - lower) * (rank - below) / (count - below)
            lower, below = (lower if math.isinf(bound) else bound), count
        return lower


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A server over one interval, all of its engines together.

    States are as of the interval's end: sums over engines, shares weighted by capacity. Counts
    (`interval_s`, `num_*_tokens`, `ended` and whatever follows it) are of the interval. A source
    that sees single moments gives a first reading of a state alone: `interval_s` is None.
    """

    at_s: float | None = None  # the interval's end, in seconds of any clock that only rises
    interval_s: float | None = None
    since_start: bool = False  # the interval is the server's life up to now, not a watched one
    restarted: bool = False  # counters fell within the interval
    # The state.
    num_running: float | None = None
    num_waiting: float | None = None
    waiting_for: Mapping[str, float] | None = None  # by core.step.Blocker's words; sum: waiting
    num_deferred: float | None = None  # of the waiting, barred by something of their own
    kv_usage: float | None = None  # 0 to 1, of all blocks, those that running sequences hold
    num_resident_tokens: float | None = None
    num_reserved_tokens: float | None = None  # by a server that sets max_tokens aside
    num_backlog_tokens: float | None = None
    is_healthy: bool | None = None
    num_engines: int | None = None
    # How it was set up, as far as it says so.
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    num_kv_tokens: int | None = None  # that the KV cache holds
    memory_flag: str | None = None  # that the KV cache's size was given by
    reserves: bool | None = None  # whether max_tokens is set aside at admission
    max_loras: int | None = None
    adapters_running: tuple[str, ...] | None = None
    adapters_waiting: tuple[str, ...] | None = None
    # Counts.
    num_prompt_tokens: float | None = None  # cached ones included
    num_cached_tokens: float | None = None  # prompt tokens that the prefix cache gave
    num_output_tokens: float | None = None
    num_preemptions: float | None = None
    num_recomputed_tokens: float | None = None  # after preemptions
    evicted: Mapping[str, float] | None = None  # request ids: how often, as far as it is told
    num_steps: float | None = None
    busy_s: float | None = None  # time within steps, summed over engines
    prefill_busy_s: float | None = None  # of it, where the server tells the two apart
    decode_busy_s: float | None = None
    ended: Mapping[str, float] | None = None  # sequences by finish reason: stop, length, …
    ended_by_model: Mapping[str, Mapping[str, float]] | None = None
    num_refused: float | None = None
    # Distributions.
    ttft_s: Distribution | None = None
    itl_s: Distribution | None = None
    queue_s: Distribution | None = None
    prefill_s: Distribution | None = None
    decode_s: Distribution | None = None
    e2e_s: Distribution | None = None
    prompt_tokens: Distribution | None = None
    output_tokens: Distribution | None = None
    max_tokens: Distribution | None = None  # as asked for
    step_tokens: Distribution | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderWay:
    """A request that has not ended, as its server tells of it."""

    request_id: str
    status: str  # waiting, running, preempted
    age_s: float  # since it arrived


class Tries(Protocol):
    """Tries changes on the very traffic that was seen; see trials.py."""

    def changes_for(self, wall: Wall) -> tuple[Change, ...]: ...

    def inert(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """All that a source tells. `server`: whose it is (headway, vllm, sglang, tgi, llama.cpp)."""

    source: str  # what was read, in words that begin the report
    server: str | None = None
    readings: tuple[Reading, ...] = ()
    findings: tuple[Finding, ...] = ()
    trials: Tries | None = None
    under_way: tuple[UnderWay, ...] = ()  # the oldest, where a server names them
    notes: tuple[str, ...] = ()  # what to know of the source: left out, garbled, cut off
