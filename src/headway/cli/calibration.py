"""A designed load on a live engine: steps of every kind, in random order, and what they took.

A scene is a number of sequences that decode at some contexts, with or without prompts coming in.
Contexts are not computed: the steps that would are answered without a forward pass, and blocks
get keys and values of a computed one, so that a scene costs only the steps it is there for. All
else is as in serving: the scheduler decides, sequences are admitted, grow and finish. Scenes come
in shuffled rounds, so that a machine that slows down for a while does so for all kinds of steps.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass

import numpy as np

from headway.core.request import Request, SamplingParams
from headway.core.scheduler import Scheduler
from headway.core.step import Step, StepResult
from headway.drive.loop import EngineLoop
from headway.drive.ports import Command, ResetPrefixCache, Submit, Withdraw
from headway.engine.build import Engine
from headway.engine.clock import RealClock
from headway.simulator.step_time.base import StepShape, shape_of_step
from headway.simulator.step_time.observations import Observations

_BATCHES = (0, 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 512)
_TURNS = 5  # measured steps of a scene, at least
_MAX_PROMPTS = 4
_MAX_CONTEXT = 4096
_FILL_STEPS = 128  # skipped for the contexts of a scene, at most
_SHARE_OF_POOL = 0.8  # what decodes may fill: prompts must find room
_SCENE_SHARE = 1 / 30  # of the time, what the prompts of one scene may take
_FIRST_PROMPT = 64


@dataclass(frozen=True, slots=True)
class Scene:
    """`contexts` of the sequences that decode, `prompts` that come in beside them."""

    contexts: tuple[int, ...]
    prompts: tuple[int, ...]


class NoInbox:
    """For an engine whose own loop is not turned."""

    def take(self) -> list[Command]:
        return []

    def wait(self, until_ns: int | None = None) -> bool:
        return False


class Rig:
    """The loop of an engine, with forward passes that can be left out.

    Inbox and Executor of its own loop round the engine's scheduler. A step lasts as long as the
    turn of the loop that it is in: whatever happens between two turns is ours.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._commands: list[Command] = []
        self._is_skipping = False
        self._clock = RealClock()
        self._shape: StepShape | None = None  # of the step of this turn, if it is measured
        self._error: Exception | None = None
        self._own_ns = 0  # of this turn, that serving would not take
        self._filled = np.zeros(engine.kv_cache.num_blocks, dtype=bool)
        self._source_block: int | None = None
        self.steps: list[tuple[StepShape, int]] = []
        self._loop = EngineLoop(
            engine.scheduler,
            clock=self._clock,
            inbox=self,
            executor=self,
            listeners=(engine.executor,),
        )

    @property
    def has_taken(self) -> bool:
        """Everything sent is in the scheduler's hands."""
        return not self._commands

    @property
    def scheduler(self) -> Scheduler:
        return self._engine.scheduler

    def take(self) -> list[Command]:
        taken, self._commands = self._commands, []
        return taken

    def wait(self, until_ns: int | None = None) -> bool:
        return bool(self._commands)

    def send(self, *commands: Command) -> None:
        self._commands += commands

    def run(self, step: Step) -> StepResult:
        if self._is_skipping:
            for chunk in step.chunks:
                self._fill(chunk.block_ids)
            return StepResult([1 for c in step.chunks if c.samples])
        start_ns = self._clock.now_ns()
        self._shape = shape_of_step(step)
        if self._source_block is None:
            self._source_block = next(iter(step.chunks)).block_ids[0]
        self._own_ns = self._clock.now_ns() - start_ns
        try:
            return self._engine.executor.run(step)
        except Exception as error:
            self._error = error  # to the loop a failed step is one that an engine survives
            raise

    def turn(self) -> bool:
        """Raises RuntimeError for a step that failed."""
        self._shape, self._own_ns = None, 0
        start_ns = self._clock.now_ns()
        has_moved = self._loop.turn()
        lasted_ns = self._clock.now_ns() - start_ns - self._own_ns
        if self._error is not None:
            raise RuntimeError(f"a step failed: {self._error}") from self._error
        if self._shape is not None:
            self.steps.append((self._shape, lasted_ns))
        return has_moved

    def skip(self, is_enough: Callable[[], bool]) -> None:
        """Turn without computing until `is_enough`."""
        self._is_skipping = True
        while not is_enough() and self.turn():
            pass
        self._is_skipping = False

    def _fill(self, block_ids: SequenceOf[int]) -> None:
        """Memory that nobody wrote is read faster than it would be in serving."""
        blank = [block for block in block_ids if not self._filled[block]]
        if not blank or self._source_block is None:
            return
        cache = self._engine.kv_cache
        tiles = cache.block_size // 16
        for array in (cache.keys, cache.values):
            source = array[:, self._source_block * tiles]
            for block in blank:
                for tile in range(block * tiles, (block + 1) * tiles):
                    array[:, tile] = source
        self._filled[blank] = True


def measure(
    engine: Engine,
    *,
    seconds: float,
    seed: int = 0,
    temperature: float = 0.0,
    say: Callable[[str], None] = lambda line: None,
) -> Observations:
    """Put the load on an engine that serves nobody, for so many seconds.

    Its steps are those of requests at this temperature. Raises RuntimeError when a step fails.
    """
    rig = Rig(engine)
    rng = np.random.Generator(np.random.PCG64(seed))
    play = _Player(rig, engine, rng, temperature)
    end_s = time.monotonic() + seconds
    play.scene(Scene((), (_FIRST_PROMPT,)))  # cold caches; and it computes the block to copy
    rig.steps.clear()
    for number, scene in enumerate(_scenes(engine, rng, seconds, play), 1):
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            break
        play.scene(scene)
        if number % 10 == 0:
            say(f"{number} scenes, {len(rig.steps)} steps; {left_s:.0f} s to go")
    return Observations.of(rig.steps)


def _scenes(
    engine: Engine, rng: np.random.Generator, seconds: float, play: _Player
) -> Iterator[Scene]:
    """Rounds without end: every batch, once without prompts and twice with, shuffled."""
    config = engine.scheduler.config
    most = min(config.max_num_seqs, config.max_num_batched_tokens // 2)
    batches = [batch for batch in _BATCHES if batch <= most]
    kinds = [(batch, has_prompts) for batch in batches for has_prompts in (False, True, True)]
    kinds.remove((0, False))
    while True:
        for index in rng.permutation(len(kinds)):
            batch, has_prompts = kinds[index]
            longest = max(_FIRST_PROMPT, int(play.tokens_per_second * seconds * _SCENE_SHARE))
            yield _draw(engine.scheduler, rng, batch, longest if has_prompts else 0)


def _draw(scheduler: Scheduler, rng: np.random.Generator, batch: int, longest: int) -> Scene:
    """`longest`: what all prompts of the scene may have together; 0 for a scene of decodes."""
    config = scheduler.config
    pool = int(_SHARE_OF_POOL * scheduler.pool.num_blocks * config.block_size)
    fill = min(pool, _FILL_STEPS * config.max_num_batched_tokens)
    # While the others' contexts are filled a sequence already decodes.
    room = max(4, config.max_model_len - 2 * _FILL_STEPS - 10 * _TURNS)
    scale = _log_uniform(rng, 16, min(_MAX_CONTEXT, room, fill // max(1, batch)))
    contexts = tuple(max(2, int(scale * rng.uniform(0.5, 1.0))) for _ in range(batch))
    if not longest:
        return Scene(contexts, ())
    count = int(rng.integers(1, _MAX_PROMPTS + 1))
    most = min(longest // count, 4 * config.max_num_batched_tokens, room)
    return Scene(contexts, tuple(_log_uniform(rng, 2, most) for _ in range(count)))


def _log_uniform(rng: np.random.Generator, low: int, high: int) -> int:
    return int(math.exp(rng.uniform(math.log(low), math.log(max(low + 1, high)))))


class _Player:
    """Plays scenes on a rig, and learns how fast prompts are computed."""

    def __init__(
        self, rig: Rig, engine: Engine, rng: np.random.Generator, temperature: float
    ) -> None:
        self._rig = rig
        self._vocab_size = engine.facts.vocab_size
        self._rng = rng
        self._temperature = temperature
        self._num_requests = 0
        self.tokens_per_second = 0.0

    def scene(self, scene: Scene) -> None:
        turns = _TURNS + int(self._rng.integers(0, _TURNS))
        names = self._fill(scene.contexts, turns)
        arrivals = sorted(int(n) for n in self._rng.integers(0, _TURNS, len(scene.prompts)))
        names += self._turns(scene.prompts, arrivals, turns)
        self._rig.send(*(Withdraw(name) for name in names), ResetPrefixCache())
        self._rig.skip(lambda: False)

    def _fill(self, contexts: SequenceOf[int], turns: int) -> list[str]:
        """Sequences about to decode, some of which end within the scene, as they do in serving."""
        scheduler = self._rig.scheduler
        budget = scheduler.config.max_num_batched_tokens - len(contexts)
        left, names = sum(contexts), []
        for context in contexts:
            decoded_meanwhile = left // budget + 1
            num_output_tokens = decoded_meanwhile + int(self._rng.integers(2, 4 * turns))
            names.append(self._submit(context, num_output_tokens))
            left -= context
        self._rig.skip(lambda: self._rig.has_taken and not scheduler.stats().num_backlog_tokens)
        return names

    def _turns(self, prompts: SequenceOf[int], arrivals: SequenceOf[int], turns: int) -> list[str]:
        """Measured steps, with prompts that come in at some of them."""
        rig, scheduler, names = self._rig, self._rig.scheduler, []
        first = len(rig.steps)
        waiting = list(zip(arrivals, prompts, strict=True))
        turn = 0
        while turn < turns or waiting or scheduler.stats().num_backlog_tokens:
            while waiting and waiting[0][0] <= turn:
                names.append(self._submit(waiting.pop(0)[1], 2 * turns))
            if not rig.turn() and not waiting:
                break
            turn += 1
        for shape, duration_ns in rig.steps[first:]:
            speed = shape.num_tokens / duration_ns * 1e9
            self.tokens_per_second = max(self.tokens_per_second, speed)
        return names

    def _submit(self, num_tokens: int, num_output_tokens: int) -> str:
        self._num_requests += 1
        name = f"calibration-{self._num_requests}"
        tokens = self._rng.integers(0, self._vocab_size, num_tokens)
        sampling = SamplingParams(
            temperature=self._temperature, max_tokens=num_output_tokens, ignore_eos=True
        )
        request = Request(
            request_id=name, prompt_token_ids=tuple(tokens.tolist()), sampling=sampling
        )
        self._rig.send(Submit(request))
        return name
