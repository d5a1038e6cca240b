"""What a step would have taken without the prompts in it."""

from __future__ import annotations

from collections import deque

from headway.core.policies.step_time import Load, StepTimes
from headway.simulator.step_time.base import StepShape, StepTimeModel

_NUM_RECENT = 7
_LEARN_EVERY = 8


class LearnedDecodeTimes:
    """From the steps themselves: what `StepTimes` says of the decodes alone, corrected by the
    median of what it missed in the latest seven steps that had no prompt in them.

    It learns from every step with a prompt, and from one in eight of the others.
    """

    def __init__(self) -> None:
        self._times = StepTimes()
        self._recent: deque[tuple[Load, int]] = deque(maxlen=_NUM_RECENT)
        self._num_seen = 0

    def learn(self, load: Load, span_ns: int) -> None:
        """A step with this load took so long."""
        if load.num_prefill_tokens:
            self._times.learn(load, span_ns)
            return
        if self._num_seen % _LEARN_EVERY == 0:
            self._times.learn(load, span_ns)
        self._num_seen += 1
        self._recent.append((load, span_ns))

    def decodes_ns(self, num_decodes: int, attended: int) -> int:
        """What a step of so many decodes, which attend so many tokens together, takes alone."""
        missed = sorted(ns - self._times.predict_ns(load) for load, ns in self._recent)
        correction = missed[len(missed) // 2] if missed else 0
        return self._times.predict_ns(Load(num_decodes, attended, 0, 0)) + correction


class ModelDecodeTimes:
    """From the model that says how long simulated steps take: nothing is to be learned."""

    def __init__(self, model: StepTimeModel) -> None:
        self._model = model

    def learn(self, load: Load, span_ns: int) -> None:
        """It knows."""

    def decodes_ns(self, num_decodes: int, attended: int) -> int:
        shape = StepShape(
            num_decode_tokens=num_decodes, decode_attended=attended, num_samples=num_decodes
        )
        return self._model.step_ns(shape)
