"""Who computes what in the next forward pass."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

from headway.core.decodes import Decodes
from headway.core.events import AbortCause, Aborted, Advanced, Advances, Event, Queued, Retired
from headway.core.failure import spoiled_sequences
from headway.core.request import FinishReason, Request
from headway.core.scheduler_state import SchedulerState
from headway.core.sequence import Sequence, SequenceStatus
from headway.core.step import BadStepResultError, Blocker, Chunk, Chunks, Step, StepResult, apart
from headway.core.step_builder import StepBuilder
from headway.core.stride import Stride, num_quiet_steps, walk

MAX_STEPS_IN_FLIGHT = 2
_RUNNING = SequenceStatus.RUNNING  # looked up only once


class Scheduler(SchedulerState):
    """Decides each step and takes its outcome; pure, so that every driver decides the same.

    A driver alternates `schedule` and `complete` (or `fail`). It may be one step ahead: up to two
    steps in flight, run and completed strictly in order. Steps without chunks are completed too,
    with an empty result. `policies` default to those that `config` names.
    """

    # ---- Arrivals and withdrawals ----

    def add(self, request: Request, now_ns: int) -> list[Event]:
        """Queue the request's sequences, or answer at once why it can never be served."""
        if rejected := self._limits.rejected(request, request.request_id in self._live):
            return [rejected]
        return [self._enqueue(request, index, now_ns) for index in range(request.sampling.n)]

    def _enqueue(self, request: Request, index: int, now_ns: int) -> Queued:
        sequence = Sequence(
            sequence_id=self._num_sequences,
            request=request,
            index=index,
            max_num_tokens=self._limits.max_num_tokens(request),
        )
        self._num_sequences += 1
        self._catch_up()
        self._live.add(sequence)
        self._outlook.disturb()
        self._waiting.add(sequence, now_ns)
        self._time.queued(sequence)
        return Queued(sequence.sequence_id, request.request_id, index)

    def abort(
        self,
        request_id: str,
        index: int | None = None,
        reason: FinishReason = FinishReason.ABORT,
        detail: str = "",
        cause: AbortCause = AbortCause.CLIENT,
    ) -> list[Event]:
        """End a request, or one of its sequences. Nothing happens if it has ended already."""
        events: list[Event] = []
        self._catch_up()
        for sequence in self._live.of(request_id):
            # One that has ended in a static batch answers when its batch does.
            if index in (None, sequence.index) and sequence.status is not SequenceStatus.FINISHED:
                events.append(Aborted(sequence.sequence_id, request_id, reason, detail, cause))
                if reason is FinishReason.STOP:  # somebody who reads it found a stop string
                    self._forecast.ended(sequence)
                events += self._end(sequence)
        return events

    def reset_prefix_cache(self) -> None:
        """Forget which blocks hold what; the running keep theirs.

        Raises RuntimeError with a step in flight, whose failure would need the names.
        """
        if self._in_flight:
            raise RuntimeError(f"{len(self._in_flight)} steps are in flight: complete them first")
        self._prefix.reset()

    # ---- The decision ----

    def schedule(self, now_ns: int) -> Step:
        """Decide who computes what in the next forward pass. Raises RuntimeError past two ahead."""
        if len(self._in_flight) >= MAX_STEPS_IN_FLIGHT:
            raise RuntimeError(
                f"{len(self._in_flight)} steps are in flight: complete the oldest first"
            )
        if (repeated := self._repeat(now_ns)) is not None:
            return repeated
        self._catch_up()
        step = StepBuilder(index=self._num_steps, max_num_tokens=self.config.max_num_batched_tokens)
        self._expire(step, now_ns)
        self._right_of_way.prepare(step, now_ns)
        holds_decodes = self._prefill.holds_decodes or self._unit.holds_decodes
        self._continue_running(step, now_ns, holds_decodes=holds_decodes)
        step.release()
        self._admit_waiting(step, now_ns)
        self._prefix.register(self._prefill.finish(step, self._eviction.try_grow))
        if (holds_decodes or step.left_out) and step.is_empty:
            self._continue_running(step, now_ns, holds_decodes=False)
        return self._launch(step, now_ns)

    def _repeat(self, now_ns: int) -> Step | None:
        """The step after one in which all that run decoded and nobody waited, if nobody has come
        or gone since, or may have to now. None: it must be decided."""
        decodes = self._decodes
        if decodes is None or not self._outlook.repeats or decodes.index != self._num_steps:
            return None
        if self._in_flight or self._time.is_due(now_ns):
            return None
        due, size = decodes.find_due(), self.config.block_size
        if self.pool.num_free - len(due) < self._precedence.most_kept.num_blocks:
            return None  # somebody may have to evict
        if self._precedence.has_ranks:
            self._precedence.begin()
        full = [s for s in due if s.num_computed_tokens == len(s.block_ids) * size]
        self._residents.grow_each(full)
        decodes.place(size)
        self._prefix.register(due)
        step = Step(self._num_steps, decodes.chunks())
        self._launched(step, len(decodes.sequences), now_ns)
        return step

    def _expire(self, step: StepBuilder, now_ns: int) -> None:
        for take in (self._time.take_due, self._ordering.give_up):
            for sequence, cause, detail in take(now_ns):
                name = (sequence.sequence_id, sequence.request.request_id)
                step.expired.append(Aborted(*name, FinishReason.ABORT, detail, cause))
                step.retired += self._end(sequence)

    def _continue_running(self, step: StepBuilder, now_ns: int, *, holds_decodes: bool) -> None:
        """Place the running in order of service: at once those who only decode, nearly all; what
        the others need is found out one by one."""
        running = self._ordering.running(self._residents.running.values(), now_ns)
        step.tokenless, step.left_out = [], []
        if holds_decodes:
            step.tokenless = [sequence for sequence in running if sequence.is_prefilled]
            running = [sequence for sequence in running if not sequence.is_prefilled]
        prompts = self._prompts()
        running = self._prefill.order(running, prompts, self.num_waiting, step)
        step.tokenless += step.left_out
        others: list[Sequence] = []
        if decodes := self._decoding(running, prompts, step):
            step.place(decodes, self.config.block_size)
            others += decodes.due
            running = running[len(decodes.sequences) :]
        for sequence in running:
            # Another status: it was preempted earlier in this very step.
            may_go_on = step.tokens_left > 0 and sequence.status is _RUNNING
            is_placed = may_go_on and self._continue(sequence, step, now_ns)
            (others if is_placed else step.tokenless).append(sequence)
        # Only now: a chunk that is placed may still be dropped, and is then never computed.
        self._prefix.register(others)

    def _decoding(
        self, running: list[Sequence], prompts: list[Sequence], step: StepBuilder
    ) -> Decodes | None:
        """Those before the first prompt, with their blocks, if there is room in the step and in
        memory for a token of each: nobody needs to be asked about them. None: everybody does."""
        if prompts:
            running = running[: [*map({*prompts}.__contains__, running), True].index(True)]
        decodes, self._decodes = self._decodes, None
        if self._in_flight or not 0 < len(running) <= step.tokens_left:
            return None
        if not decodes or decodes.index != step.index or not decodes.follow(running):
            decodes = Decodes(running, step.index)
        self._decodes = decodes
        return decodes if self._eviction.try_grow_all(decodes.find_due(), step) else None

    def _continue(self, sequence: Sequence, step: StepBuilder, now_ns: int) -> bool:
        """Place the sequence's next chunk, if there is one and room for it."""
        if sequence.num_computed_tokens < sequence.quiet_until:
            step.add(sequence, 1, samples=True)
            return True
        num_tokens = num_wanted = sequence.num_wanted_tokens()
        if num_wanted > 1:  # one fits in whatever is left
            first = sequence.num_computed_tokens
            num_tokens = self._prefill.chunk(sequence, first, num_wanted, step)
        if not num_tokens or not self._eviction.make_room(sequence, num_tokens, step, now_ns):
            return False
        samples = num_tokens == num_wanted
        step.add(sequence, num_tokens, samples=samples)
        if samples:
            num_done = min(sequence.num_tokens, sequence.num_computed_tokens)
            sequence.quieten(self.config.block_size, num_done)
        return True

    def _admit_waiting(self, step: StepBuilder, now_ns: int) -> None:
        for sequence in self._entrance.admit(self._waiting, step, now_ns):
            self._waiting.remove(sequence)
            if not sequence.num_preemptions:
                self._time.admitted(sequence, now_ns)

    def _launch(self, builder: StepBuilder, now_ns: int) -> Step:
        step = builder.build()
        self._waiting_reasons = dict(builder.barred)
        self._tokenless = [s for s in builder.tokenless if s.status is _RUNNING]
        all_decoded = len(apart(step.chunks)[0]) == self.num_running
        # A prompt that was computed, or got in, may have kept somebody from making others leave.
        is_settled = builder.is_settled and (all_decoded or not self._precedence.has_ranks)
        self._outlook.decided(step, is_settled, all_decoded and not self.num_waiting)
        num_tokens = self.config.max_num_batched_tokens - builder.tokens_left
        self._launched(step, num_tokens, now_ns)
        num_behind = self.num_waiting - sum(builder.barred.values())
        if (blocker := step.blocker) is not None and num_behind:
            self._waiting_reasons[blocker] = builder.barred.get(blocker, 0) + num_behind
        return step

    def _launched(self, step: Step, num_tokens: int, now_ns: int) -> None:
        self._num_steps += 1
        self._in_flight.append(step)
        self._outlook.offered = None
        self._residents.num_computed_tokens += num_tokens
        self._ordering.launched(step, self._tokenless, now_ns)
        self._prefill.launched(step, now_ns)

    # ---- Many steps at once ----

    def stride(self, now_ns: int) -> Stride | None:
        """Steps to come that decide nothing new; None if the next may do something else."""
        if self._in_flight or self._unit.holds_decodes:
            return None
        self._catch_up()
        if self.num_waiting and not (
            self._ordering.is_settled and self._outlook.is_settled(self._waiting.first_id(now_ns))
        ):
            return None
        sequences = tuple(self._ordering.running(self._residents.running.values(), now_ns))
        if len(sequences) > self.config.max_num_batched_tokens:
            return None
        num_free = max(0, self.pool.num_free - self._precedence.kept(None).num_blocks)
        num_steps = num_quiet_steps(sequences, num_free, self.config.block_size)
        blocked: tuple[Blocker | None, int | None] = (None, None)
        if self.num_waiting:
            blocked = self._outlook.blocked
            num_steps = self._waiting.num_steps_in_order(sequences, num_steps)
        stride = Stride(self._num_steps, sequences, num_steps, *blocked)
        self._outlook.offered = stride if num_steps else None
        return self._outlook.offered

    def take(
        self,
        stride: Stride,
        num_steps: int,
        token_ids: SequenceOf[SequenceOf[int]],
        *,
        start_ns: int = 0,
        ends_ns: SequenceOf[int] = (),
    ) -> list[Event]:
        """Take the first steps of a stride with the tokens that they yielded for each sequence.

        They end at `ends_ns`. Returns whom the last ended. Raises ValueError, with nothing changed,
        for other steps or tokens than it has, RuntimeError if it is out of date.
        """
        if stride is not self._outlook.offered:
            raise RuntimeError(f"a stride from step {stride.first_index} is out of date")
        if not 1 <= num_steps <= stride.max_num_steps:
            raise ValueError(f"{num_steps} steps of a stride of {stride.max_num_steps}")
        prefix = self._prefix if self.config.enable_prefix_caching else None
        walk(stride, num_steps, token_ids, self._residents.grow, prefix, self.config.block_size)
        self._residents.num_computed_tokens += num_steps * len(stride.sequences)
        self._outlook.offered = None
        self._ordering.took(stride, num_steps)
        self._ordering.ran(start_ns, ends_ns)
        self._prefill.took(stride, start_ns, ends_ns)
        self._num_steps += num_steps
        if not self.num_waiting:
            self._waiting_reasons = {}
        return self._end_the_finished(stride.sequences)

    # ---- The outcome ----

    def complete(
        self, step: Step, result: StepResult, now_ns: int | None = None
    ) -> SequenceOf[Event]:
        """Add the tokens that the step yielded and end who is done.

        `now_ns`: when it ended, for policies that learn how long steps take; every driver gives it.
        Raises BadStepResultError, with nothing changed, unless every chunk that samples has its
        token; RuntimeError when `step` is not the oldest in flight.
        """
        self._check_oldest(step)
        decodes, others = self._decodes_of(step)
        sampling = [sequence for sequence, _, _, samples, _ in others if samples] if others else []
        num_together = len(decodes.sequences) if decodes else 0
        tokens, num_wanted = result.token_ids, num_together + len(sampling)
        if len(tokens) != num_wanted:
            raise BadStepResultError(f"step {step.index} samples {num_wanted}, got {len(tokens)}")
        self._in_flight.popleft()
        if now_ns is not None:
            self._ordering.completed(step, now_ns)
        events: list[Event] = []
        together = tokens[:num_together] if sampling else tokens
        may_end = decodes.advance(together) if decodes else []
        if sampling:
            advanced = self._advance(sampling, tokens[num_together:])
            events += [Advanced(s.sequence_id, s.request_id, (s.token_ids[-1],)) for s in advanced]
            may_end += advanced
        self._prefill.completed(step, now_ns)
        if may_end:
            events += self._end_the_finished(may_end)
        return Advances(decodes.names, together, events) if decodes else events

    def _advance(self, sampling: list[Sequence], tokens: SequenceOf[int]) -> list[Sequence]:
        """Give each its token, but for those that ended while it was in flight."""
        advanced: list[Sequence] = []
        for sequence, token_id in zip(sampling, tokens, strict=True):
            if sequence.status is not SequenceStatus.FINISHED:
                sequence.token_ids.append(token_id)
                advanced.append(sequence)
        self._prefix.register(advanced)
        return advanced

    def _decodes_of(self, step: Step) -> tuple[Decodes | None, Chunks | tuple[Chunk, ...]]:
        """Those that only wait for their tokens, and the chunks of others. With another step in
        flight, or if one of them has left, all are others."""
        chunks, decodes = step.chunks, self._decodes
        ahead = len(self._in_flight) > 1
        if decodes is None or decodes.gone or ahead or not isinstance(chunks, Chunks):
            return None, chunks
        return (decodes, chunks.others) if chunks.sequences is decodes.sequences else (None, chunks)

    def _end_the_finished(self, advanced: SequenceOf[Sequence]) -> list[Event]:
        """Of those that just got a token, end whom it ends: nearly always nobody."""
        events: list[Event] = []
        for s in advanced:
            may_end = len(s.token_ids) >= s.max_num_tokens or s.token_ids[-1] in s.stop_token_ids
            if (may_end or s.repetition) and (retired := self._limits.ending(s)):
                events += self._end(s, retired)
        return events

    def fail(self, step: Step, detail: str) -> list[Event]:
        """The step could not be run: its sequences end with an error, the others go on."""
        self._check_oldest(step)
        self._in_flight.popleft()
        spoiled = spoiled_sequences(step, self._in_flight, self._prefix)
        ended = [s for s in spoiled if s.status is not SequenceStatus.FINISHED]
        events: list[Event] = []
        for sequence in ended:
            name = (sequence.sequence_id, sequence.request.request_id)
            events.append(Retired(*name, FinishReason.ERROR, detail=detail))
            events += self._end(sequence)
        return events

    def _check_oldest(self, step: Step) -> None:
        if not self._in_flight or self._in_flight[0] is not step:
            expected = self._in_flight[0].index if self._in_flight else "none"
            raise RuntimeError(f"step {step.index} is not the oldest in flight ({expected})")

    def _end(self, sequence: Sequence, retired: Retired | None = None) -> list[Retired]:
        """End a sequence; returns the endings to tell now, here `retired` or, in a static batch,
        none or those of the whole batch. None: the caller tells this one's."""
        due = [retired] if retired else []
        self._catch_up()
        self._outlook.disturb()
        if sequence.status is SequenceStatus.RUNNING:
            if self._decodes:
                self._decodes.gone.append(sequence)
            due = self._residents.retire(sequence, retired)
        else:
            self._waiting.remove(sequence)
            sequence.finish()
        if retired is None:
            self._live.remove(sequence.request.request_id, sequence.sequence_id)
        return self._live.tell(due)
