"""How long prompts may make a step while others decode: a step's time under a target."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence as SequenceOf
from typing import TYPE_CHECKING

from headway.core.policies.step_time import Load, StepTimes, load_of
from headway.core.step import Chunk, Chunks, Step

if TYPE_CHECKING:  # it imports the policies
    from headway.core.stride import Stride

_FLOOR = 10  # prompts get a tenth of the target at least
_NUM_RECENT = 7
_ONE_LATE_IN = 128
_NUM_DELAYS = 2 * _ONE_LATE_IN - 1
_FIRST_CHUNK = 64
_DEEP = 256  # tokens of context up to which a first chunk may be
_MEMORY_BITS = 8


class StallGuard:
    """Chooses how many prompt tokens a step with decodes may have, so that it ends in time.

    What the decodes take is what `StepTimes` says, corrected by the median of what it missed in
    the latest seven steps that had some; so one slow step changes nothing, and a machine that has
    become slower is believed after four. What is left under the target is for prompts, less the
    delay that one step in 128 exceeds: predictions are right on average, and what a host takes for
    itself comes on top, so many milliseconds however long the step. A delay of more than half the
    target is passed over: nothing that prompts could give up would make up for it.

    Prompts always get on: they have a tenth of the target, and one token, whatever decodes take.
    Nothing is computed that is out of all proportion to what has been seen: a step has at most
    twice the prompt tokens of the largest so far, 64 to begin with, and 64 in a context more than
    twice as deep as any.
    """

    def __init__(self, target_ns: int) -> None:
        self._target_ns = target_ns
        self._times = StepTimes()
        self._recent: deque[tuple[Load, int]] = deque(maxlen=_NUM_RECENT)
        self._delays_ns: deque[int] = deque(maxlen=_NUM_DELAYS)  # of steps that were predicted
        self._delay_ns = 0  # of them, the one that is allowed for
        self._most_tokens = _FIRST_CHUNK // 2  # of prompts, in a step of late
        self._most_context = _DEEP // 2
        self._launched: deque[tuple[int, int, int | None]] = deque()
        self._last_end_ns: int | None = None

    # ---- The decision ----

    def decodes_ns(self, decodes: Chunks | SequenceOf[Chunk]) -> int:
        """What a step of these alone is expected to take."""
        missed = sorted(ns - self._times.predict_ns(load) for load, ns in self._recent)
        correction = missed[len(missed) // 2] if missed else 0
        return max(0, self._times.predict_ns(load_of(decodes)) + correction)

    def prompts_ns(self, decodes_ns: int) -> int:
        """What prompts may add to it."""
        aim_ns = self._target_ns - self._delay_ns
        return max(aim_ns - decodes_ns, self._target_ns // _FLOOR)

    def cost_ns(self, first_position: int, num_tokens: int) -> int:
        """What a chunk of a prompt is expected to add."""
        return self._times.prefill_ns(first_position, num_tokens)

    def fitting(self, first_position: int, most: int, room_ns: int, num_beside: int) -> int:
        """How many tokens of a prompt, at most `most`, with so many of others in the step."""
        most = min(most, 2 * self._most_tokens - num_beside)
        if first_position > 2 * self._most_context:
            most = min(most, _FIRST_CHUNK)
        sizes = range(1, most + 1)
        return bisect_right(sizes, room_ns, key=lambda size: self.cost_ns(first_position, size))

    # ---- What became of it ----

    def launched(self, step: Step, start_ns: int) -> None:
        """The step was decided; its prediction is in it if prompts share it with decodes."""
        self._launched.append((step.index, start_ns, step.predicted_ns))

    def completed(self, step: Step, end_ns: int) -> None:
        """Learn from a step; those that failed before it are forgotten."""
        start_ns, predicted_ns = end_ns, None
        while self._launched and self._launched[0][0] <= step.index:
            _, start_ns, predicted_ns = self._launched.popleft()
        if not step.chunks:
            return
        load = load_of(step.chunks)
        span_ns = self._span_ns(start_ns, end_ns)
        if predicted_ns is not None:
            self._delayed(max(0, span_ns - predicted_ns))
        if load.num_decodes:
            self._recent.append((load, span_ns))
        if load.num_prefill_tokens:
            self._times.learn(load, span_ns)
            deepest = max(chunk.first_position + chunk.num_tokens for chunk in step.chunks)
            self._most_tokens = _follow(self._most_tokens, load.num_prefill_tokens)
            self._most_context = _follow(self._most_context, deepest)

    def took(self, stride: Stride, start_ns: int, ends_ns: SequenceOf[int]) -> None:
        """A stride was taken: of steps that only decode, the latest are all that is remembered."""
        count, num_steps = len(stride.sequences), len(ends_ns)
        attended = sum(sequence.num_computed_tokens for sequence in stride.sequences)
        for number in range(max(0, num_steps - _NUM_RECENT), num_steps):
            if number:
                start_ns = self._last_end_ns = ends_ns[number - 1]
            left = num_steps - 1 - number
            load = Load(count, attended - left * count, 0, 0)
            self._recent.append((load, self._span_ns(start_ns, ends_ns[number])))

    def _span_ns(self, start_ns: int, end_ns: int) -> int:
        """What the step took of the decoders' time: all since the one before it ended.

        Of a pause between the two, at most a quarter of the step itself: a longer one was not for
        work that every step brings.
        """
        last_ns = start_ns if self._last_end_ns is None else self._last_end_ns
        self._last_end_ns = end_ns
        pause_ns = max(0, start_ns - last_ns)
        span_ns = max(1, end_ns - max(start_ns, last_ns))
        return span_ns + min(pause_ns, span_ns // 4)

    def _delayed(self, delay_ns: int) -> None:
        """The longest of up to 127 delays, the second longest of 128 to 255: if they come in no
        order, the next is longer once in as many steps, or in 128, whatever they are like."""
        self._delays_ns.append(delay_ns)
        in_order = [0, *sorted(self._delays_ns)]
        chosen = len(self._delays_ns) - len(self._delays_ns) // _ONE_LATE_IN
        self._delay_ns = in_order[min(chosen, bisect_right(in_order, self._target_ns // 2) - 1)]


def _follow(most: int, seen: int) -> int:
    """The largest of late: what is not seen again is halved in some 180 steps."""
    return max(seen, most - (most >> _MEMORY_BITS))
