"""What happened, folded into columns: one row for each sequence, one for each step."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as SequenceOf
from typing import NamedTuple, Protocol

from headway.core.events import (
    Aborted,
    Admitted,
    Advanced,
    Event,
    Preempted,
    Queued,
    Rejected,
    Resumed,
    Retired,
)
from headway.core.scheduler import Scheduler
from headway.core.step import Blocker, Step
from headway.core.stride import Stride
from headway.simulator.bill import PreemptionBill
from headway.simulator.script import HasRequest
from headway.simulator.step_time.base import StepShape

NEVER = -1  # in a column of times or indexes
BLOCKERS = (None, *Blocker)  # a step's blocker is a place in this
_NUMBER_OF = {blocker: number for number, blocker in enumerate(BLOCKERS)}


class SequenceColumns:
    """One row for each sequence, by its id; times in nanoseconds, NEVER where something was not."""

    def __init__(self) -> None:
        self.request_id: list[str] = []
        self.tenant: list[str] = []
        self.reason: list[str] = []  # "" while it has not ended
        self.arrival_ns = array("q")
        self.admitted_ns = array("q")
        self.first_token_ns = array("q")
        self.ended_ns = array("q")
        self.last_step = array("q")  # that gave it a token
        self.num_prompt_tokens = array("i")
        self.num_output_tokens = array("i")
        self.num_cached_tokens = array("i")  # prefix-cache hits at its first admission
        self.num_preemptions = array("i")
        self.num_lost_tokens = array("q")  # by all preemptions
        self.num_recomputed_tokens = array("q")  # of these, what the prefix cache did not refund
        self.num_recomputed_prompt_tokens = array("q")
        self.preempted_ns = array("q")  # from each eviction to the next token, or to the end

    def add(self, request_id: str, tenant: str, arrival_ns: int, num_prompt_tokens: int) -> None:
        self.request_id.append(request_id)
        self.tenant.append(tenant)
        self.reason.append("")
        self.arrival_ns.append(arrival_ns)
        self.num_prompt_tokens.append(num_prompt_tokens)
        for times in (self.admitted_ns, self.first_token_ns, self.ended_ns, self.last_step):
            times.append(NEVER)
        for counts in (self.num_output_tokens, self.num_cached_tokens, self.num_preemptions):
            counts.append(0)
        self.num_lost_tokens.append(0)
        self.num_recomputed_tokens.append(0)
        self.num_recomputed_prompt_tokens.append(0)
        self.preempted_ns.append(0)


class StepRows:
    """One row for each step, or for each run of steps that differ by a token for each sequence.

    Times in nanoseconds, the state as the first step of the row leaves it. `num_continuing`, too,
    is of the first step: in those behind it all continue.
    """

    def __init__(self) -> None:
        self.end_ns = array("q")  # of each step, as the next
        self.num_held_blocks = array("i")
        self.num_steps = array("i")
        self.start_ns = array("q")
        self.num_prefill_tokens = array("i")
        self.num_prefills = array("i")
        self.prefill_attended = array("q")
        self.prefill_context = array("q")
        self.num_decode_tokens = array("i")
        self.decode_attended = array("q")
        self.num_samples = array("i")
        self.num_running = array("i")
        self.num_slots = array("i")  # taken: by the running, and by ended members of a static batch
        self.num_waiting = array("i")
        self.num_preempted = array("i")
        self.num_live_tokens = array("q")  # places in held blocks that hold a token of the running
        self.blocker = array("b")  # a place in BLOCKERS
        self.num_continuing = array("i")  # sequences that got a token in the step before, too

    def add(
        self, num_steps: int, start_ns: int, shape: StepShape, state: State, num_continuing: int
    ) -> None:
        self.num_steps.append(num_steps)
        self.start_ns.append(start_ns)
        self.num_prefill_tokens.append(shape.num_prefill_tokens)
        self.num_prefills.append(shape.num_prefills)
        self.prefill_attended.append(shape.prefill_attended)
        self.prefill_context.append(shape.prefill_context)
        self.num_decode_tokens.append(shape.num_decode_tokens)
        self.decode_attended.append(shape.decode_attended)
        self.num_samples.append(shape.num_samples)
        self.num_running.append(state.num_running)
        self.num_slots.append(state.num_slots)
        self.num_waiting.append(state.num_waiting)
        self.num_preempted.append(state.num_preempted)
        self.num_live_tokens.append(state.num_live_tokens)
        self.blocker.append(state.blocker)
        self.num_continuing.append(num_continuing)


class State(NamedTuple):
    """The scheduler's, in a step."""

    num_running: int
    num_slots: int
    num_waiting: int
    num_preempted: int
    num_live_tokens: int
    blocker: int


class Asked(Protocol):
    """Knows the requests of all sequences that have not ended."""

    def script_of(self, request_id: str) -> HasRequest: ...


class Collector:
    """Listener, and told by the executor of each step that it runs."""

    def __init__(self, scheduler: Scheduler, asked: Asked) -> None:
        self._scheduler = scheduler
        self._asked = asked
        self._counts_sharing = scheduler.config.enable_prefix_caching
        self.sequences = SequenceColumns()
        self.steps = StepRows()
        self.gaps_ns: list[int] = []  # between tokens of a sequence that missed steps in between
        self.refused: list[Rejected] = []
        self._bills: dict[int, PreemptionBill] = {}  # of those that were preempted and live

    # ---- Steps ----

    def on_run(self, step: Step, shape: StepShape, start_ns: int, end_ns: int) -> None:
        """A step was run and is not completed yet."""
        num_resident = shape.decode_attended + shape.prefill_context
        if len(step.chunks) != self._scheduler.num_running:
            running = self._scheduler.running_sequences()
            num_resident = sum(sequence.num_computed_tokens for sequence in running)
        state = self._state(step.blocker, num_resident, len(step.preempted))
        self.steps.add(1, start_ns, shape, state, 0)
        self.steps.end_ns.append(end_ns)
        self.steps.num_held_blocks.append(self._scheduler.pool.num_held)

    def _state(self, blocker: Blocker | None, num_resident: int, num_preempted: int) -> State:
        scheduler = self._scheduler
        num_running = scheduler.num_running
        num_slots = num_running + len(scheduler.parked_sequences())
        num_live = num_resident - self._num_shared_tokens()
        number = _NUMBER_OF[blocker]
        return State(num_running, num_slots, scheduler.num_waiting, num_preempted, num_live, number)

    def _num_shared_tokens(self) -> int:
        """Tokens of the running that are held once and counted more often."""
        if not self._counts_sharing:
            return 0
        scheduler = self._scheduler
        resident = [*scheduler.running_sequences(), *scheduler.parked_sequences()]
        num_counted = sum(len(sequence.block_ids) for sequence in resident)
        return (num_counted - scheduler.pool.num_held) * scheduler.config.block_size

    def on_run_stride(
        self, stride: Stride, shape: StepShape, start_ns: int, ends_ns: SequenceOf[int]
    ) -> None:
        """Steps of a stride were run and are not taken yet; `shape` is that of the first."""
        num_late = self._continue(stride, ends_ns)
        state = self._state(stride.blocker, shape.decode_attended, 0)
        num_continuing = len(stride.sequences) - num_late
        self.steps.add(len(ends_ns), start_ns, shape, state, num_continuing)
        self.steps.end_ns.extend(ends_ns)
        self.steps.num_held_blocks.extend(self._held_during(stride, len(ends_ns)))

    def _continue(self, stride: Stride, ends_ns: SequenceOf[int]) -> int:
        """Tokens for all sequences; returns how many of them had missed the step before."""
        before, num_steps, num_late = len(self.steps.end_ns) - 1, len(ends_ns), 0
        last_step, num_output = self.sequences.last_step, self.sequences.num_output_tokens
        if self._bills:  # a recompute may end with a chunk of one, which is a decode
            self._close_bills([s.sequence_id for s in stride.sequences], ends_ns[0])
        for sequence in stride.sequences:
            sequence_id = sequence.sequence_id
            if last_step[sequence_id] != before:
                num_late += 1
                self.gaps_ns.append(ends_ns[0] - self.steps.end_ns[last_step[sequence_id]])
            last_step[sequence_id] = before + num_steps
            num_output[sequence_id] += num_steps
        return num_late

    def _close_bills(self, sequence_ids: SequenceOf[int], now_ns: int) -> None:
        """These got a token."""
        for sequence_id in self._bills.keys() & sequence_ids:
            self._bills[sequence_id].got_on(now_ns)
            self.sequences.preempted_ns[sequence_id] = self._bills[sequence_id].lost_ns

    def _held_during(self, stride: Stride, num_steps: int) -> SequenceOf[int]:
        """Held blocks in each step: from its first need on, a sequence takes one every so often."""
        block_size = self._scheduler.config.block_size
        taken = [0] * num_steps
        for sequence in stride.sequences:
            first = len(sequence.block_ids) * block_size - sequence.num_computed_tokens
            if first < num_steps:
                taken[first] += 1
        num_held = self._scheduler.pool.num_held
        held: list[int] = []
        for number in range(num_steps):
            if number >= block_size:
                taken[number] += taken[number - block_size]
            num_held += taken[number]
            held.append(num_held)
        return held

    # ---- Sequences ----

    def on_events(self, events: SequenceOf[Event], now_ns: int) -> None:
        advanced = [event for event in events if type(event) is Advanced]
        if advanced:
            self._advance(advanced, now_ns)
        if len(advanced) < len(events):
            for event in events:
                if type(event) is not Advanced:
                    self._fold(event, now_ns)

    def _advance(self, advanced: SequenceOf[Advanced], now_ns: int) -> None:
        """Tokens of the latest step."""
        index = len(self.steps.end_ns) - 1
        before, num_continuing = index - 1, 0
        last_step, num_output = self.sequences.last_step, self.sequences.num_output_tokens
        for event in advanced:
            sequence_id = event.sequence_id
            last = last_step[sequence_id]
            if last == before and last != NEVER:
                num_continuing += 1
            elif last == NEVER:
                self.sequences.first_token_ns[sequence_id] = now_ns
            else:
                self.gaps_ns.append(now_ns - self.steps.end_ns[last])
            last_step[sequence_id] = index
            num_output[sequence_id] += 1
        self.steps.num_continuing[-1] = num_continuing
        if self._bills:
            self._close_bills([event.sequence_id for event in advanced], now_ns)

    def _fold(self, event: Event, now_ns: int) -> None:
        sequences = self.sequences
        match event:
            case Queued(_, request_id, _):
                request = self._asked.script_of(request_id).request
                arrived_ns, num_tokens = request.arrival_ns, request.num_prompt_tokens
                sequences.add(request_id, request.tenant, arrived_ns, num_tokens)
            case Admitted(sequence_id, _, num_cached_tokens):
                sequences.admitted_ns[sequence_id] = now_ns
                sequences.num_cached_tokens[sequence_id] = num_cached_tokens
            case Preempted(sequence_id):
                self._bills.setdefault(sequence_id, PreemptionBill()).preempted(event, now_ns)
                self._write_bill(sequence_id)
            case Resumed(sequence_id):
                self._resume(event)
            case Retired() | Aborted():
                if bill := self._bills.pop(event.sequence_id, None):
                    bill.got_on(now_ns)
                    self.sequences.preempted_ns[event.sequence_id] = bill.lost_ns
                sequences.ended_ns[event.sequence_id] = now_ns
                sequences.reason[event.sequence_id] = event.reason.value
            case Rejected():
                self.refused.append(event)

    def _resume(self, event: Resumed) -> None:
        sequences, sequence_id = self.sequences, event.sequence_id
        bill = self._bills[sequence_id]
        bill.resumed(event)
        num_of_prompt = min(bill.num_lost_latest, sequences.num_prompt_tokens[sequence_id])
        again = max(0, num_of_prompt - event.num_cached_tokens)
        sequences.num_recomputed_prompt_tokens[sequence_id] += again
        self._write_bill(sequence_id)

    def _write_bill(self, sequence_id: int) -> None:
        bill, sequences = self._bills[sequence_id], self.sequences
        sequences.num_preemptions[sequence_id] = bill.num_preemptions
        sequences.num_lost_tokens[sequence_id] = bill.num_lost_tokens
        sequences.num_recomputed_tokens[sequence_id] = bill.num_recomputed_tokens
