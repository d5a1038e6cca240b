"""The executor of a machine that is not there: a model says how long a step takes."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from typing import NamedTuple

from headway.core.events import Aborted, Advanced, Event, Retired, new_tuple
from headway.core.sequence import Sequence
from headway.core.step import Step, StepResult
from headway.core.stride import Stride
from headway.drive.clock import VirtualClock
from headway.drive.ports import StrideResult
from headway.simulator.collector import Collector
from headway.simulator.inbox import WorkloadInbox
from headway.simulator.script import END_TOKEN, Script
from headway.simulator.step_time.base import StepShape, StepTimeModel


class _Part(NamedTuple):
    """A sequence's part in the script of its request."""

    script: Script
    place: int  # index of the sequence in its request
    last_length: int  # prompt and output together
    filler: int | None


class CostModelExecutor:
    """Executor, Strider and Listener: moves the clock, makes up tokens, ends outputs in time."""

    def __init__(
        self,
        clock: VirtualClock,
        model: StepTimeModel,
        inbox: WorkloadInbox,
        collector: Collector,
    ) -> None:
        self._clock = clock
        self._model = model
        self._inbox = inbox
        self._collector = collector
        self._parts: dict[int, _Part] = {}
        self._failure: Exception | None = None

    def run(self, step: Step) -> StepResult:
        try:
            return self._run(step)
        except Exception as error:
            self._failure = error  # to the loop a failed step is one that an engine survives
            raise

    def _run(self, step: Step) -> StepResult:
        prefill_tokens = prefills = prefill_attended = prefill_context = 0
        decodes = decode_attended = 0
        tokens: list[int] = []
        # shape_of_step and the sampling in one pass: this is where a simulation spends its time.
        for sequence, first, count, samples, _ in step.chunks:
            if count == 1 and first >= sequence.num_prompt_tokens:
                decodes += 1
                decode_attended += first + 1
            else:
                prefill_tokens += count
                prefills += 1
                prefill_attended += count * first + count * (count + 1) // 2
                prefill_context += first + count
            if samples:
                tokens.append(self._next_token(sequence))
        shape = StepShape(
            prefill_tokens,
            prefills,
            prefill_attended,
            prefill_context,
            decodes,
            decode_attended,
            len(tokens),
        )
        start_ns = self._clock.now_ns()
        self._clock.advance(self._model.step_ns(shape))
        self._collector.on_run(step, shape, start_ns, self._clock.now_ns())
        return StepResult(tokens)

    def _next_token(self, sequence: Sequence) -> int:
        part = self._parts.get(sequence.sequence_id) or self._part_of(sequence)
        script, index, last_length, filler = part
        length = sequence.num_expected_tokens
        if length >= last_length:
            return END_TOKEN
        if filler is not None:
            return filler
        start = length - 1 - sequence.num_prompt_tokens
        return script.output_token_ids(index, start, 1)[0]

    def _part_of(self, sequence: Sequence) -> _Part:
        part = self._parts.get(sequence.sequence_id)
        if part is None:
            script, index = self._inbox.script_of(sequence.request.request_id), sequence.index
            last_length = sequence.num_prompt_tokens + script.num_output_tokens(index)
            part = _Part(script, index, last_length, script.filler)
            self._parts[sequence.sequence_id] = part
        return part

    def next_arrival_ns(self) -> int | None:
        return self._inbox.next_ns()

    def run_stride(self, stride: Stride, until_ns: int | None) -> StrideResult:
        parts: list[_Part] = []
        num_steps, attended = stride.max_num_steps, len(stride.sequences)
        for sequence in stride.sequences:
            part = self._parts.get(sequence.sequence_id) or self._part_of(sequence)
            parts.append(part)
            attended += sequence.num_computed_tokens
            num_left = part.last_length - len(sequence.token_ids)
            if num_left < num_steps:
                num_steps = num_left
        shape = StepShape(0, 0, 0, 0, len(parts), attended, len(parts))
        ends_ns = self._times(shape, num_steps, until_ns)
        self._collector.on_run_stride(stride, shape, self._clock.now_ns(), ends_ns)
        self._clock.advance_to(ends_ns[-1])
        count = len(ends_ns)
        pairs = zip(stride.sequences, parts, strict=True)
        return StrideResult(ends_ns, [_tokens(sequence, part, count) for sequence, part in pairs])

    def _times(self, shape: StepShape, num_steps: int, until_ns: int | None) -> list[int]:
        """When the steps end that begin before `until_ns`."""
        now_ns, step_ns = self._clock.now_ns(), self._model.step_ns
        attended, count = shape.decode_attended, shape.num_decode_tokens
        ends_ns: list[int] = []
        for _ in range(num_steps):
            now_ns += step_ns(shape)
            ends_ns.append(now_ns)
            if until_ns is not None and now_ns >= until_ns:
                break
            attended += count
            shape = new_tuple(StepShape, (0, 0, 0, 0, count, attended, count))
        return ends_ns

    def on_events(self, events: SequenceOf[Event], now_ns: int) -> None:
        """Raises what the latest step raised: there is no machine that could break."""
        if self._failure:
            raise self._failure
        for event in events:
            if type(event) is not Advanced and isinstance(event, Retired | Aborted):
                self._parts.pop(event.sequence_id, None)


def _tokens(sequence: Sequence, part: _Part, count: int) -> list[int]:
    """Its next tokens; the last of its output ends it."""
    length = len(sequence.token_ids)
    if part.filler is not None:
        token_ids = [part.filler] * count
    else:
        start = length - sequence.num_prompt_tokens
        token_ids = list(part.script.output_token_ids(part.place, start, count))
    if length + count >= part.last_length:
        token_ids[-1] = END_TOKEN
    return token_ids
