"""Log lines in the words that people and their scripts already know."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from headway.core.events import Aborted, Admitted, Advanced, Event, Preempted, Queued, Rejected
from headway.core.request import Request
from headway.insight.arrivals import Arrivals
from headway.server.config import AppSettings
from headway.wire import EngineFacts, EngineStats

INTERVAL_S = 10.0


class StatsLog:
    """A fold that says, when asked, what happened since it was last asked."""

    def __init__(self) -> None:
        self._arrivals = Arrivals()
        self._waiting_prompts: dict[int, int] = {}  # tokens, by sequence id
        self._stats: EngineStats | None = None
        self._begin_interval()

    def on_submitted(self, request: Request, now_ns: int) -> None:
        self._arrivals.submit(request, now_ns)

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        for event in events:
            self._fold(event)

    def on_stats(self, stats: EngineStats) -> None:
        self._stats = stats

    def line(self, elapsed_s: float) -> tuple[int, str]:
        """The level (debug when idle) and the line; begins a new interval of `elapsed_s`."""
        running = 0 if self._stats is None else self._stats.num_running
        waiting = 0 if self._stats is None else self._stats.num_waiting
        is_idle = not (running or waiting or self._prompt or self._generated)
        preempted = f"Preemptions: {self._preemptions}, " if self._preemptions else ""
        line = (
            f"Engine 000: "
            f"Avg prompt throughput: {self._prompt / elapsed_s:.1f} tokens/s, "
            f"Avg generation throughput: {self._generated / elapsed_s:.1f} tokens/s, "
            f"Running: {running} reqs, Waiting: {waiting} reqs, {preempted}"
            f"CPU KV cache usage: {self._usage():.1%}, "
            f"Prefix cache hit rate: {self._hits / max(1, self._queries):.1%}"
        )
        self._begin_interval()
        return (logging.DEBUG if is_idle else logging.INFO), line

    def _begin_interval(self) -> None:
        self._prompt = 0
        self._generated = 0
        self._preemptions = 0
        self._queries = 0
        self._hits = 0

    def _usage(self) -> float:
        stats = self._stats
        if stats is None or not stats.num_total_blocks:
            return 0.0
        return stats.num_held_blocks / stats.num_total_blocks

    def _fold(self, event: Event) -> None:
        match event:
            case Queued(sequence_id):
                if arrival := self._arrivals.queued(event):
                    self._waiting_prompts[sequence_id] = arrival.request.num_prompt_tokens
            case Admitted(sequence_id, _, num_cached_tokens):
                num_tokens = self._waiting_prompts.pop(sequence_id, num_cached_tokens)
                self._queries += num_tokens
                self._hits += num_cached_tokens
                self._prompt += num_tokens - num_cached_tokens
            case Advanced(token_ids=token_ids):
                self._generated += len(token_ids)
            case Preempted():
                self._preemptions += 1
            case Aborted(sequence_id):
                self._waiting_prompts.pop(sequence_id, None)
            case Rejected(request_id):
                self._arrivals.answered(request_id)


def start_lines(facts: EngineFacts, stop_ids: Sequence[str]) -> list[str]:
    """What was decided at start. `stop_ids`: each a phrase that says who names it."""
    num_tokens = facts.num_blocks * facts.block_size
    fit = num_tokens / facts.max_model_len
    stops = "; ".join(stop_ids)
    phases = ", ".join(f"{name} {ms:.0f} ms" for name, ms in facts.phases_ms.items())
    return [
        f"Model {facts.model}: {facts.precision} on {facts.backend} ({facts.backend_reason})",
        f"CPU KV cache size: {num_tokens:,} tokens ({facts.kv_cache_dtype}, "
        f"{num_tokens * facts.kv_bytes_per_token / 2**20:,.0f} MiB)",
        f"Maximum concurrency for {facts.max_model_len:,} tokens per request: {fit:.2f}x",
        f"max_num_seqs {facts.max_num_seqs}, max_num_batched_tokens "
        f"{facts.max_num_batched_tokens}: {_wall(facts, fit)}",
        f"Stop ids: {stops or 'none'}",
        f"Engine start: {phases}",
    ]


def limits_line(settings: AppSettings) -> str:
    """Which brakes are on; those that are off are named together."""
    known = {
        "sequences in flight": settings.max_num_queued_reqs,
        "prompt tokens to compute": settings.max_num_queued_tokens,
        "seconds in the queue": settings.max_queue_time_s,
        "seconds of run": settings.max_request_seconds,
        "seconds to the deadline": settings.default_deadline_s,
    }
    own = {
        "sequences of a tenant in flight": settings.max_tenant_queued_reqs,
        "prompt tokens of a tenant": settings.max_tenant_queued_tokens,
    }
    on = [f"{limit:g} {what}" for what, limit in known.items() if limit is not None]
    on += [f"{limit} {what}" for what, limit in own.items() if limit is not None]
    off = [what for what, limit in known.items() if limit is None]
    limits = ", ".join([*on, f"no limit of {', '.join(off)}"] if off else on)
    keys = len(settings.api_keys)
    return f"Limits: {limits}; {keys or 'no'} API key{'' if keys == 1 else 's'}"


def _wall(facts: EngineFacts, fit: float) -> str:
    if fit >= facts.max_num_seqs:
        return "the wall is max_num_seqs, even if every request fills its context"
    per_seq = facts.num_blocks * facts.block_size // facts.max_num_seqs
    return (
        f"the wall is max_num_seqs while requests hold fewer than {per_seq:,} tokens each, "
        f"and KV memory above that"
    )
