"""A scheduler under test, with a model and a KV store that notice every wrong block.

The model is a function of the tokens before: what it samples is the same in any batch, so a
sequence's output must be too. The store keeps, for every row, a fingerprint of the prefix that the
row's keys and values stand for; a pass checks the rows of each of its sequences before it samples.
"""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf

from headway.core.config import SchedulerConfig
from headway.core.constraints import Constraint
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
from headway.core.policies import Policies
from headway.core.request import (
    FinishReason,
    RepetitionDetection,
    Request,
    SamplingParams,
    TimeLimits,
)
from headway.core.scheduler import Scheduler
from headway.core.sequence import Sequence, SequenceStatus
from headway.core.step import Chunk, Step, StepResult
from headway.drive.invariants import check, check_idle, check_progress, ends_in_repetition

VOCABULARY = 7
STOP_TOKEN_ID = 6
GARBAGE = -1
NO_LIMITS = TimeLimits()


def make_request(
    request_id: str,
    prompt: SequenceOf[int] = (1,),
    *,
    max_tokens: int | None = 4,
    min_tokens: int = 0,
    n: int = 1,
    stops: bool = False,
    prompt_logprobs: int | None = None,
    adapter: str = "",
    tenant: str = "",
    cache_salt: str = "",
    priority: int = 0,
    arrival_ns: int = 0,
    limits: TimeLimits = NO_LIMITS,
    forced: SequenceOf[int] = (),
    repetition: RepetitionDetection | None = None,
) -> Request:
    return Request(
        request_id=request_id,
        prompt_token_ids=tuple(prompt),
        sampling=SamplingParams(
            max_tokens=max_tokens,
            min_tokens=min_tokens,
            n=n,
            prompt_logprobs=prompt_logprobs,
            repetition_detection=repetition,
        ),
        stop_token_ids=frozenset([STOP_TOKEN_ID] if stops else []),
        adapter=adapter,
        tenant=tenant,
        cache_salt=cache_salt,
        priority=priority,
        arrival_ns=arrival_ns,
        limits=limits,
        forced_token_ids=tuple(forced),
    )


class ToyModel:
    """Samples by a fingerprint of all tokens before; no state."""

    def fingerprints(self, sequence: Sequence, token_ids: SequenceOf[int]) -> list[int]:
        request = sequence.request
        value = hash((len(request.adapter), len(request.cache_salt)))
        values = []
        for token_id in token_ids:
            value = hash((value, token_id))
            values.append(value)
        return values

    def sample(self, sequence: Sequence, fingerprint: int) -> int:
        return hash((fingerprint, sequence.index)) % VOCABULARY

    def output(self, sequence: Sequence, num_tokens: int) -> list[int]:
        """Prompt and output of the sequence run alone, `num_tokens` in all."""
        tokens = list(sequence.request.prompt_token_ids)
        fingerprint = self.fingerprints(sequence, tokens)[-1]
        while len(tokens) < num_tokens:
            tokens.append(self.sample(sequence, fingerprint))
            fingerprint = hash((fingerprint, tokens[-1]))
        return tokens


class ToyExecutor:
    """Runs steps in order on a store of fingerprints."""

    def __init__(self, num_blocks: int, block_size: int) -> None:
        self.model = ToyModel()
        self._block_size = block_size
        self._rows = [GARBAGE] * (num_blocks * block_size)

    def run(self, step: Step) -> StepResult:
        expected = [(chunk, self._expected(chunk)) for chunk in step.chunks]
        for chunk, prints in expected:
            for position in range(chunk.first_position, len(prints)):
                self._rows[self._row(chunk, position)] = prints[position]
        for chunk, prints in expected:
            self._verify(chunk, prints)
        return StepResult(
            [
                self.model.sample(chunk.sequence, prints[-1])
                for chunk, prints in expected
                if chunk.samples
            ]
        )

    def spoil(self, step: Step) -> None:
        """The pass broke off: whatever it was to write is garbage."""
        for chunk in step.chunks:
            for position in range(chunk.first_position, chunk.first_position + chunk.num_tokens):
                self._rows[self._row(chunk, position)] = GARBAGE

    def _expected(self, chunk: Chunk) -> list[int]:
        end = chunk.first_position + chunk.num_tokens
        tokens = self.model.output(chunk.sequence, end)[:end]
        return self.model.fingerprints(chunk.sequence, tokens)

    def _verify(self, chunk: Chunk, prints: list[int]) -> None:
        if chunk.sequence.status is not SequenceStatus.FINISHED:
            rows = [self._rows[self._row(chunk, position)] for position in range(len(prints))]
            assert rows == prints, f"{chunk.sequence} reads foreign rows in {chunk}"

    def _row(self, chunk: Chunk, position: int) -> int:
        block = chunk.block_ids[position // self._block_size]
        return block * self._block_size + position % self._block_size


class World:
    """Scheduler, executor and a ledger of who ended how; checks every law after every move."""

    def __init__(
        self,
        config: SchedulerConfig,
        num_blocks: int,
        constraints: SequenceOf[Constraint] = (),
        policies: Policies | None = None,
    ) -> None:
        self.config = config
        self.scheduler = Scheduler(config, num_blocks, policies, constraints)
        self.executor = ToyExecutor(num_blocks, config.block_size)
        self.events: list[Event] = []
        self.steps: list[Step] = []
        self.sequences: dict[int, Sequence] = {}
        self.endings: dict[int, Retired | Aborted] = {}
        self.outputs: dict[int, list[int]] = {}
        self.now_ns = 0

    def submit(self, request: Request) -> list[Event]:
        return self._note(self.scheduler.add(request, self.now_ns))

    def abort(self, request_id: str, index: int | None = None) -> list[Event]:
        return self._note(self.scheduler.abort(request_id, index))

    def schedule(self) -> Step:
        step = self.scheduler.schedule(self.now_ns)
        self.steps.append(step)
        self._note([*step.expired, *step.preempted, *step.admitted, *step.resumed, *step.retired])
        check_progress(self.scheduler, step)
        for chunk in step.chunks:
            self.sequences.setdefault(chunk.sequence.sequence_id, chunk.sequence)
        return step

    def complete(self) -> list[Event]:
        step = self.scheduler.in_flight[0]
        if self.config.target_itl_ms:  # there is something to learn
            self.now_ns += 100 + 200 * step.num_tokens
        return self._note(self.scheduler.complete(step, self.executor.run(step), self.now_ns))

    def fail(self) -> list[Event]:
        step = self.scheduler.in_flight[0]
        self.executor.spoil(step)
        return self._note(self.scheduler.fail(step, "the executor broke"))

    def turn(self) -> Step:
        step = self.schedule()
        while self.scheduler.in_flight:
            self.complete()
        return step

    def drain(self, max_steps: int = 20_000) -> int:
        """Run until nobody is left; the number of steps. Every sequence must have ended once."""
        num_steps = 0
        while self.scheduler.in_flight:
            self.complete()
        while self.scheduler.has_unfinished():
            self.turn()
            num_steps += 1
            assert num_steps < max_steps, "no end in sight"
        check_idle(self.scheduler)
        assert set(self.endings) == set(self.outputs)
        return num_steps

    def endings_of(self, request_id: str) -> list[Retired | Aborted]:
        return [end for end in self.endings.values() if end.request_id == request_id]

    def _note(self, events: list[Event]) -> list[Event]:
        for event in events:
            self.events.append(event)
            self._note_one(event)
        check(self.scheduler)
        return events

    def _note_one(self, event: Event) -> None:
        match event:
            case Queued(sequence_id):
                self.outputs[sequence_id] = []
            case Advanced(sequence_id, _, token_ids):
                assert sequence_id not in self.endings, "a token after the end"
                self.outputs[sequence_id] += token_ids
            case Retired(sequence_id) | Aborted(sequence_id):
                assert sequence_id not in self.endings, "ended twice"
                self.endings[sequence_id] = event
                self._check_output(sequence_id)
            case Admitted() | Resumed() | Preempted() | Rejected():
                pass

    def _check_output(self, sequence_id: int) -> None:
        """What it was told is what the model says alone, and it ended where it should."""
        sequence = self.sequences.get(sequence_id)
        output, ending = self.outputs[sequence_id], self.endings[sequence_id]
        if sequence is None:
            assert not output
            return
        num_tokens = sequence.num_prompt_tokens + len(output)
        alone = self.executor.model.output(sequence, num_tokens)
        assert output == alone[sequence.num_prompt_tokens :]
        assert num_tokens <= sequence.max_num_tokens
        if ending.reason is FinishReason.LENGTH:
            assert num_tokens == sequence.max_num_tokens
        if ending.reason is FinishReason.STOP:
            assert output[-1] == STOP_TOKEN_ID
        if ending.reason is FinishReason.REPETITION:
            rule = sequence.request.sampling.repetition_detection
            assert rule is not None
            assert ends_in_repetition(output, rule)


def steps_to_first_token(world: World, name: str) -> int:
    """Turns until this request has a token."""
    for number in range(1, 30):
        step = world.turn()
        if any(c.samples and c.sequence.request.request_id == name for c in step.chunks):
            return number
    raise AssertionError("no token in 30 steps")


def evicted(step: Step) -> list[str]:
    return [event.request_id for event in step.preempted]
