"""What one sequence went through, in bounded memory however long it lives."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as changed

from headway.core.events import (
    Aborted,
    Admitted,
    Advanced,
    Event,
    Preempted,
    Queued,
    Resumed,
    Retired,
)
from headway.core.request import Request
from headway.insight.cutter import ChunkRow, Cutter, Span, StepTimes
from headway.insight.explain.prompt_steps import PromptSteps
from headway.insight.explain.report import DECODE, STEP, Eviction
from headway.insight.explain.tally import MOST_WINDOWS, Tally
from headway.insight.explain.waits import TenantQueues, Waits, since

MOST_EVICTIONS = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """What must be known of an engine: how tokens become blocks, and the caps of tenants."""

    block_size: int
    max_model_len: int
    reserves: bool = False  # the blocks of all that a sequence may ever hold, from the start
    max_tenant_seqs: int = 0

    def num_reserved(self, request: Request) -> int:
        """Tokens whose blocks a sequence holds before they are computed."""
        if not self.reserves:
            return 0
        most = request.max_output_tokens
        if most is None:
            return self.max_model_len
        return min(request.num_prompt_tokens + most, self.max_model_len)


class Life:
    """One sequence. Nanoseconds; None where something has not been."""

    def __init__(
        self,
        event: Queued,
        request: Request,
        arrival_ns: int,
        queues: TenantQueues,
        steps: PromptSteps,
        pool: Pool,
    ) -> None:
        self.sequence_id = event.sequence_id
        self.request_id, self.index, self.tenant = event.request_id, event.index, request.tenant
        self.arrival_ns = arrival_ns
        self.tally = Tally()
        self.status = "waiting"
        self.detail = ""
        self.num_output_tokens = 0
        self.num_cached_tokens = 0
        self.num_held_tokens = 0
        self._num_reserved_tokens = pool.num_reserved(request)
        self.waited: dict[str, int] = {}
        self.waited_again: dict[str, int] = {}
        self.queued_ns = 0
        self.entered_ns: int | None = None
        self.left_ns: int | None = None
        self.ended_ns: int | None = None
        self.closed_ns: int | None = None
        self.away: list[tuple[int, int]] = []  # after preemptions, the latest of very many
        self.evictions: list[Eviction] = []
        self.num_preemptions = self.num_lost_tokens = 0
        self.num_recomputed_tokens = self.num_refunded_tokens = 0
        self._num_lost_latest = 0
        self._away_since_ns: int | None = None
        self._cutter = Cutter(arrival_ns, self._on_span)
        self._queues, self._steps = queues, steps
        self._first_until_ns: int | None = None  # in the queue
        self._is_queued = False
        self._waits: Waits | None = None
        self._before: dict[str, int] = {}
        self._stalled_before = 0
        self._had_chunk = False

    @property
    def is_running(self) -> bool:
        return self.status == "running"

    @property
    def num_blocks_for(self) -> int:
        """Tokens that its blocks are for."""
        return max(self.num_held_tokens, self._num_reserved_tokens)

    # ---- What happens ----

    def queued(self, now_ns: int) -> None:
        self.queued_ns = now_ns
        self._join(now_ns)

    def on_chunk(self, step: StepTimes, chunk: ChunkRow) -> None:
        self._cutter.on_chunk(step, chunk)
        self.num_held_tokens = chunk[1] + chunk[2]
        self._had_chunk = True

    def on_advanced(self, event: Advanced, now_ns: int) -> None:
        self.num_output_tokens += len(event.token_ids)
        self.num_held_tokens += not self._had_chunk
        self._had_chunk = False
        if self._cutter.phase != DECODE:
            self._cutter.on_event(event, now_ns)
            self._stalled_before = self._steps.stalled_ns

    def on_event(self, event: Event, now_ns: int) -> None:
        """Anything else. `beneficiary` of a preemption is filled in by who knows its name."""
        self._cutter.on_event(event, now_ns)
        match event:
            case Admitted():
                self.num_cached_tokens = event.num_cached_tokens
                self._enter(event.num_cached_tokens, now_ns)
                self.entered_ns = now_ns
            case Resumed():
                self._enter(event.num_cached_tokens, now_ns)
                self._come_back(event, now_ns)
            case Retired() | Aborted():
                self._leave_all(now_ns)
                self.status, self.detail = event.reason.value, event.detail
                self.ended_ns = now_ns

    def on_preempted(self, event: Preempted, beneficiary: str, now_ns: int) -> None:
        self._cutter.on_event(event, now_ns)
        self._queues.left(self.tenant)
        self.status = "preempted"
        self.num_preemptions = event.num_preemptions
        self.num_lost_tokens += event.num_lost_tokens
        self._num_lost_latest = event.num_lost_tokens
        self.num_held_tokens = 0
        self._had_chunk = False
        self._away_since_ns = now_ns
        self._join(now_ns)
        if len(self.evictions) < MOST_EVICTIONS:
            self.evictions.append(
                Eviction(
                    at_ns=now_ns - self.arrival_ns,
                    number=event.num_preemptions,
                    beneficiary=beneficiary,
                    lost_tokens=event.num_lost_tokens,
                    free_blocks_before=event.num_free_blocks_before,
                    free_blocks_after=event.num_free_blocks_after,
                )
            )

    def close(self, now_ns: int) -> None:
        """The client has its answer: what comes now is not its time."""
        if self.closed_ns is None:
            self.closed_ns = now_ns
            self._cutter.close(now_ns)
            self._settle(now_ns)

    # ---- What there is to say ----

    def tally_at(self, now_ns: int) -> Tally:
        """With what is under way."""
        if self.closed_ns is not None:
            return self.tally
        tally = self.tally.copy()
        for span in self._cutter.under_way(now_ns):
            tally.add(span, self.arrival_ns, self._stall_ns())
        return tally

    def waited_at(self, now_ns: int) -> tuple[dict[str, int], dict[str, int]]:
        """For what and how long, before its first step, and after preemptions."""
        waited, again = self.waited, self.waited_again
        if self._waits is not None:
            latest = since(self._waits.snapshot(now_ns), self._before)
            if self._away_since_ns is not None:
                again = _sum(again, latest)
            else:
                waited = _sum(waited, latest)
        end_ns = now_ns if self._first_until_ns is None else self._first_until_ns
        intake_ns = end_ns - self.arrival_ns - sum(waited.values())
        return _sum({STEP: intake_ns} if intake_ns else {}, waited), again

    def queue_windows(self, now_ns: int) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
        """When it waited: before its first step, and after preemptions."""
        end_ns = now_ns if self._first_until_ns is None else self._first_until_ns
        again = list(self.away)
        if self._away_since_ns is not None:
            again.append((self._away_since_ns, now_ns))
        return [(self.queued_ns, end_ns)], again

    def residence_ns(self, start_ns: int, end_ns: int, now_ns: int) -> int:
        """For how long, between these two, it had a slot."""
        if self.entered_ns is None:
            return 0
        left_ns = now_ns if self.left_ns is None else self.left_ns
        if self._away_since_ns is not None:
            left_ns = min(left_ns, self._away_since_ns)
        resident_ns = _overlap(self.entered_ns, left_ns, start_ns, end_ns)
        away = sum(_overlap(a, min(b, left_ns), start_ns, end_ns) for a, b in self.away)
        return max(0, resident_ns - away)

    # ---- Bookkeeping ----

    def _on_span(self, span: Span) -> None:
        self.tally.add(span, self.arrival_ns, self._stall_ns())

    def _stall_ns(self) -> int:
        return self._steps.stalled_ns - self._stalled_before

    def _join(self, now_ns: int) -> None:
        waits = self._queues.joined(self.tenant)
        self._is_queued = True
        if self.closed_ns is None:
            self._waits, self._before = waits, waits.snapshot(now_ns)

    def _leave_queue(self, now_ns: int) -> None:
        self._settle(now_ns)
        if self._is_queued:
            self._is_queued = False
            self._queues.went(self.tenant)

    def _settle(self, now_ns: int) -> None:
        """Note what it waited for; it does so no more, or nobody waits for it."""
        if self._waits is None:
            return
        waited = since(self._waits.snapshot(now_ns), self._before)
        self._waits, self._before = None, {}
        if self._away_since_ns is not None:
            self.waited_again = _sum(self.waited_again, waited)
        else:
            self.waited = _sum(self.waited, waited)
            self._first_until_ns = now_ns

    def _enter(self, num_cached_tokens: int, now_ns: int) -> None:
        self._leave_queue(now_ns)
        self._queues.entered(self.tenant)
        self.status = "running"
        self.num_held_tokens = num_cached_tokens

    def _come_back(self, event: Resumed, now_ns: int) -> None:
        refunded = self._num_lost_latest - event.num_recomputed_tokens
        self.num_recomputed_tokens += event.num_recomputed_tokens
        self.num_refunded_tokens += refunded
        away_ns = self._end_absence(now_ns)
        if self.evictions and self.evictions[-1].number == self.num_preemptions:
            self.evictions[-1] = changed(
                self.evictions[-1],
                away_ns=away_ns,
                recomputed_tokens=event.num_recomputed_tokens,
                refunded_tokens=refunded,
            )

    def _end_absence(self, now_ns: int) -> int:
        """Returns how long it was."""
        since_ns, self._away_since_ns = self._away_since_ns, None
        assert since_ns is not None
        self.away.append((since_ns, now_ns))
        del self.away[:-MOST_WINDOWS]
        return now_ns - since_ns

    def _leave_all(self, now_ns: int) -> None:
        """It ends, wherever it is."""
        if self.is_running:
            self._queues.left(self.tenant)
        self._leave_queue(now_ns)
        if self._away_since_ns is not None:
            self.left_ns = self._away_since_ns
            self._end_absence(now_ns)
        elif self.entered_ns is not None:
            self.left_ns = now_ns


def _sum(first: dict[str, int], second: dict[str, int]) -> dict[str, int]:
    names = dict.fromkeys((*first, *second))
    return {name: first.get(name, 0) + second.get(name, 0) for name in names}


def _overlap(start_ns: int, end_ns: int, other_start_ns: int, other_end_ns: int) -> int:
    return max(0, min(end_ns, other_end_ns) - max(start_ns, other_start_ns))
