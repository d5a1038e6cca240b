"""What happened, folded into columns: one row for each sequence, one for each step."""

from __future__ import annotations

from array import array
from collections.abc import Sequence as SequenceOf
from itertools import accumulate, repeat

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
from headway.simulator.inbox import WorkloadInbox
from headway.simulator.step_time.base import StepShape

NEVER = -1  # in a column of times or indexes
BLOCKERS = (None, *Blocker)  # a step's blocker is a place in this
_NUMBER_OF = {None if b is None else b.value: number for number, b in enumerate(BLOCKERS)}


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


class StepColumns:
    """One row for each step; times in nanoseconds, the state as the step leaves it."""

    def __init__(self) -> None:
        self.start_ns = array("q")
        self.end_ns = array("q")
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
        self.num_held_blocks = array("i")
        self.num_live_tokens = array("q")  # places in held blocks that hold a token of the running
        self.blocker = array("b")  # a place in BLOCKERS
        self.num_continuing = array("i")  # sequences that got a token in the step before, too

    def add(self, start_ns: int, end_ns: int, shape: StepShape) -> None:
        self.start_ns.append(start_ns)
        self.end_ns.append(end_ns)
        self.num_prefill_tokens.append(shape.num_prefill_tokens)
        self.num_prefills.append(shape.num_prefills)
        self.prefill_attended.append(shape.prefill_attended)
        self.prefill_context.append(shape.prefill_context)
        self.num_decode_tokens.append(shape.num_decode_tokens)
        self.decode_attended.append(shape.decode_attended)
        self.num_samples.append(shape.num_samples)
        self.num_continuing.append(0)

    def add_stride(
        self, start_ns: int, ends_ns: SequenceOf[int], count: int, attended: int
    ) -> None:
        """Steps of `count` decodes, the first of which attends `attended` tokens."""
        num_steps = len(ends_ns)
        self.start_ns.append(start_ns)
        self.start_ns.extend(ends_ns[:-1])
        self.end_ns.extend(ends_ns)
        for zeros in (self.num_prefill_tokens, self.num_prefills):
            zeros.extend(repeat(0, num_steps))
        for zeros in (self.prefill_attended, self.prefill_context):
            zeros.extend(repeat(0, num_steps))
        for counts in (self.num_decode_tokens, self.num_samples, self.num_continuing):
            counts.extend(repeat(count, num_steps))
        self.decode_attended.extend(range(attended, attended + num_steps * count, count))


class Collector:
    """Listener, and told by the executor of each step that it runs."""

    def __init__(self, scheduler: Scheduler, inbox: WorkloadInbox) -> None:
        self._scheduler = scheduler
        self._inbox = inbox
        self._counts_sharing = scheduler.config.enable_prefix_caching
        self._grows = scheduler.config.kv_policy != "reserve"
        self.sequences = SequenceColumns()
        self.steps = StepColumns()
        self.gaps_ns: list[int] = []  # between tokens of a sequence that missed steps in between
        self.refused: list[Rejected] = []
        self._lost: dict[int, int] = {}  # tokens that the preempted had computed

    # ---- Steps ----

    def on_run(self, step: Step, shape: StepShape, start_ns: int, end_ns: int) -> None:
        """A step was run and is not completed yet."""
        scheduler, steps = self._scheduler, self.steps
        steps.add(start_ns, end_ns, shape)
        num_running = scheduler.num_running
        num_parked = len(scheduler.parked_sequences())
        steps.num_running.append(num_running)
        steps.num_slots.append(num_running + num_parked)
        steps.num_waiting.append(scheduler.num_waiting)
        steps.num_preempted.append(len(step.preempted))
        steps.num_held_blocks.append(scheduler.pool.num_held)
        steps.blocker.append(_NUMBER_OF[step.blocker.value if step.blocker else None])
        num_resident = shape.decode_attended + shape.prefill_context
        if len(step.chunks) != num_running:
            num_resident = sum(s.num_computed_tokens for s in scheduler.running_sequences())
        steps.num_live_tokens.append(num_resident - self._num_shared_tokens())

    def _num_shared_tokens(self) -> int:
        """Tokens of the running that are held once and counted more often."""
        if not self._counts_sharing:
            return 0
        scheduler = self._scheduler
        resident = [*scheduler.running_sequences(), *scheduler.parked_sequences()]
        num_counted = sum(len(sequence.block_ids) for sequence in resident)
        return (num_counted - scheduler.pool.num_held) * scheduler.config.block_size

    def on_run_stride(self, stride: Stride, start_ns: int, ends_ns: SequenceOf[int]) -> None:
        """Steps of a stride were run and are not taken yet."""
        scheduler, steps = self._scheduler, self.steps
        count, num_steps = len(stride.sequences), len(ends_ns)
        attended = stride.num_attended
        row = len(steps.end_ns)
        late_ns = self._continue(stride, row - 1, ends_ns)
        steps.add_stride(start_ns, ends_ns, count, attended)
        if late_ns:
            steps.num_continuing[row] -= len(late_ns)
            self.gaps_ns += late_ns
        num_parked = len(scheduler.parked_sequences())
        steps.num_running.extend(repeat(count, num_steps))
        steps.num_slots.extend(repeat(count + num_parked, num_steps))
        steps.num_waiting.extend(repeat(scheduler.num_waiting, num_steps))
        steps.num_preempted.extend(repeat(0, num_steps))
        steps.num_held_blocks.extend(self._held_during(stride, num_steps))
        live = attended - self._num_shared_tokens()
        steps.num_live_tokens.extend(range(live, live + num_steps * count, count))
        blocker = stride.blocker.value if stride.blocker else None
        steps.blocker.extend(repeat(_NUMBER_OF[blocker], num_steps))

    def _continue(self, stride: Stride, before: int, ends_ns: SequenceOf[int]) -> list[int]:
        """Tokens for all sequences; how long those had had none that missed the step before."""
        num_steps = len(ends_ns)
        last_step, num_output = self.sequences.last_step, self.sequences.num_output_tokens
        late_ns: list[int] = []
        for sequence in stride.sequences:
            sequence_id = sequence.sequence_id
            if last_step[sequence_id] != before:
                late_ns.append(ends_ns[0] - self.steps.end_ns[last_step[sequence_id]])
            last_step[sequence_id] = before + num_steps
            num_output[sequence_id] += num_steps
        return late_ns

    def _held_during(self, stride: Stride, num_steps: int) -> SequenceOf[int]:
        """Held blocks in each step: a sequence that grows takes one at each border it crosses."""
        num_held = self._scheduler.pool.num_held
        if not self._grows:
            return [num_held] * num_steps
        block_size = self._scheduler.config.block_size
        crossing = [0] * block_size  # how many take a block in steps of which remainder
        for sequence in stride.sequences:
            crossing[-sequence.num_computed_tokens % block_size] += 1
        taken = (crossing[number % block_size] for number in range(num_steps))
        return list(accumulate(taken, initial=num_held))[1:]

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
        self.steps.num_continuing[index] = num_continuing

    def _fold(self, event: Event, now_ns: int) -> None:
        sequences = self.sequences
        match event:
            case Queued(_, request_id, _):
                request = self._inbox.script_of(request_id).request
                arrived_ns, num_tokens = request.arrival_ns, request.num_prompt_tokens
                sequences.add(request_id, request.tenant, arrived_ns, num_tokens)
            case Admitted(sequence_id, _, num_cached_tokens):
                sequences.admitted_ns[sequence_id] = now_ns
                sequences.num_cached_tokens[sequence_id] = num_cached_tokens
            case Preempted(sequence_id):
                sequences.num_preemptions[sequence_id] += 1
                sequences.num_lost_tokens[sequence_id] += event.num_lost_tokens
                self._lost[sequence_id] = event.num_lost_tokens
            case Resumed(sequence_id):
                self._resume(event)
            case Retired() | Aborted():
                sequences.ended_ns[event.sequence_id] = now_ns
                sequences.reason[event.sequence_id] = event.reason.value
            case Rejected():
                self.refused.append(event)

    def _resume(self, event: Resumed) -> None:
        sequences, sequence_id = self.sequences, event.sequence_id
        num_of_prompt = min(self._lost.pop(sequence_id), sequences.num_prompt_tokens[sequence_id])
        again = max(0, num_of_prompt - event.num_cached_tokens)
        sequences.num_recomputed_tokens[sequence_id] += event.num_recomputed_tokens
        sequences.num_recomputed_prompt_tokens[sequence_id] += again
