"""What may come in: limits on what is in flight, and when it is worth coming again."""

from __future__ import annotations

import math
from collections.abc import Sequence

from headway.core.events import Aborted, Admitted, Advanced, Event, Rejected, Retired
from headway.core.request import Request
from headway.server.ledger import Ledger
from headway.server.refusals import NeverFitsError, QueueFullError
from headway.server.tenant_brakes import TenantBrakes
from headway.server.throughput import Throughput
from headway.wire import EngineStats

__all__ = ["Brakes", "DrainRate", "NeverFitsError", "QueueFullError"]


class DrainRate:
    """A fold: what was done in the last thirty seconds, per second in which there was work."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.throughput = Throughput()
        self._to_compute: dict[int, int] = {}  # by sequence id: prompt tokens without the cached
        self._prompts: dict[str, int] = {}

    def on_submitted(self, request: Request, now_ns: int) -> None:
        self.throughput.pass_time(now_ns)
        self.throughput.is_busy = True
        self._prompts[request.request_id] = request.num_prompt_tokens

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        self.throughput.pass_time(now_ns)
        for event in events:
            self._fold(event)
        self.throughput.is_busy = self._ledger.num_sequences > 0

    def on_stats(self, stats: EngineStats) -> None:
        """Nothing is learned from these."""

    def _fold(self, event: Event) -> None:
        match event:
            case Admitted(sequence_id, request_id, num_cached_tokens):
                num_tokens = self._prompts.get(request_id, 0) - num_cached_tokens
                self._to_compute[sequence_id] = num_tokens
            case Advanced(sequence_id):
                if num_tokens := self._to_compute.pop(sequence_id, 0):
                    self.throughput.computed(num_tokens)
            case Retired(sequence_id) | Aborted(sequence_id):
                self.throughput.ended()
                self._to_compute.pop(sequence_id, None)
                self._forget(event.request_id)
            case Rejected(request_id):
                self._forget(request_id)

    def _forget(self, request_id: str) -> None:
        if request_id not in self._ledger:
            self._prompts.pop(request_id, None)


class Brakes:
    """Refuses what would be too much; None is no limit.

    `max_num_reqs` counts sequences in flight, waiting or running, so n choices are n.
    `max_num_tokens` counts prompt tokens that are still to compute: what the engine said after its
    last step, and the prompts it has not spoken of yet. Tenants may have limits of their own.
    """

    def __init__(
        self, ledger: Ledger, max_num_reqs: int | None = None, max_num_tokens: int | None = None
    ) -> None:
        self._ledger = ledger
        self._max_num_reqs = max_num_reqs
        self._max_num_tokens = max_num_tokens
        self._stats: EngineStats | None = None
        self._tenants: TenantBrakes | None = None
        self.rate = DrainRate(ledger)

    def limit(self, max_num_reqs: int | None, max_num_tokens: int | None) -> None:
        self._max_num_reqs = max_num_reqs
        self._max_num_tokens = max_num_tokens

    def limit_tenants(self, max_num_reqs: int | None, max_num_tokens: int | None) -> None:
        """Of each tenant, before anything is submitted."""
        if max_num_reqs is not None or max_num_tokens is not None:
            self._tenants = TenantBrakes(max_num_reqs, max_num_tokens)

    def on_submitted(self, request: Request, now_ns: int) -> None:
        self.rate.on_submitted(request, now_ns)
        if self._tenants is not None:
            self._tenants.on_submitted(request, now_ns)

    def on_events(self, events: Sequence[Event], now_ns: int) -> None:
        self.rate.on_events(events, now_ns)
        if self._tenants is not None:
            self._tenants.on_events(events, now_ns)

    def on_stats(self, stats: EngineStats) -> None:
        self._stats = stats

    @property
    def num_backlog_tokens(self) -> int:
        told = 0 if self._stats is None else self._stats.num_backlog_tokens
        return told + self._ledger.num_unqueued_tokens

    def check(self, num_sequences: int, tenant: str = "") -> None:
        """Raises QueueFullError when that many more sequences are too many, all or none, and
        NeverFitsError when they always will be. Of several limits the one that lasts longest.
        """
        refusals = [self._of_sequences(num_sequences), self._of_tokens()]
        if self._tenants is not None:
            refusals += self._tenants.refusals(tenant, num_sequences)
        binding = [refusal for refusal in refusals if refusal is not None]
        if binding:
            raise max(binding, key=lambda refusal: refusal.retry_after_s)

    def retry_after_s(self) -> int:
        """Whole seconds, from 1 to 60, until about half of what is in flight should be done."""
        half = math.ceil(self._ledger.num_sequences / 2)
        throughput = self.rate.throughput
        return throughput.until_done(half, throughput.num_ended(), "sequences")[0]

    def _of_sequences(self, num_sequences: int) -> QueueFullError | None:
        limit, now = self._max_num_reqs, self._ledger.num_sequences
        if limit is None or now + num_sequences <= limit:
            return None
        if num_sequences > limit:
            raise NeverFitsError(
                f"this asks for {num_sequences} sequences (prompts times n) and the server takes "
                f"{limit} at once: send fewer prompts or a smaller n"
            )
        why = f"{now} of {limit} sequences are in flight and this asks for {num_sequences} more"
        throughput = self.rate.throughput
        seconds, basis = throughput.until_done(
            now + num_sequences - limit, throughput.num_ended(), "sequences"
        )
        return QueueFullError(
            f"the server is full: {why}; try again in {seconds} s ({basis})", seconds
        )

    def _of_tokens(self) -> QueueFullError | None:
        limit, now = self._max_num_tokens, self.num_backlog_tokens
        if limit is None or now < limit:
            return None
        throughput = self.rate.throughput
        seconds, basis = throughput.until_done(
            now - limit + 1, throughput.num_prompt_tokens(), "prompt tokens"
        )
        return QueueFullError(
            f"the server is full: {now} prompt tokens wait to be computed and the limit is "
            f"{limit}; try again in {seconds} s ({basis})",
            seconds,
            "queue_tokens",
        )
