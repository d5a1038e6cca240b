"""How long steps take: t(b) of b decodes, its straight line, where it bends, the ridge."""

from __future__ import annotations

from dataclasses import dataclass

from headway.simulator.step_time.base import StepShape, StepTimeModel
from headway.simulator.step_time.hardware import Hardware
from headway.simulator.step_time.roofline import RooflineModel

_MOST = 1 << 16  # sequences that a knee is looked for in


@dataclass(frozen=True, slots=True)
class Decoding:
    """Steps that decode sequences of `context` tokens on average, and nothing else."""

    model: StepTimeModel
    context: float

    def step_s(self, batch: float) -> float:
        """t(b). Between whole numbers in a straight line; below 1 as at 1."""
        whole = max(1, int(batch))
        below = self._step_s(whole)
        rest = max(1.0, batch) - whole
        return below + rest * (self._step_s(whole + 1) - below) if rest else below

    def tokens_per_second(self, batch: float) -> float:
        return batch / self.step_s(batch)

    def line(self, batch: int) -> tuple[float, float]:
        """a and gamma, in seconds, of the straight line a + gamma b through 1 and `batch`."""
        batch = max(2, batch)
        gamma = (self.step_s(batch) - self.step_s(1)) / (batch - 1)
        return self.step_s(1) - gamma, gamma

    def knee(self) -> int | None:
        """The batch at which a step takes twice as long as for one: beyond it, more sequences cost
        their tokens' pace more than they bring. None if there is none in sight."""
        low, high = 1, _MOST
        twice = 2 * self.step_s(1)
        if self.step_s(high) < twice:
            return None
        while low < high:
            middle = (low + high) // 2
            if self.step_s(middle) < twice:
                low = middle + 1
            else:
                high = middle
        return low

    def shape(self, batch: int) -> StepShape:
        return StepShape(
            num_decode_tokens=batch,
            decode_attended=round(batch * self.context),
            num_samples=batch,
        )

    def _step_s(self, batch: int) -> float:
        return self.model.step_ns(self.shape(batch)) / 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Ridge:
    """Where arithmetic takes over from memory.

    `flops_per_byte`: of the hardware's peaks. `batch`: sequences at which the products of a step
    outlast the reading of weights. `binds`: whether they ever outlast weights and keys and values
    together, which are read for each sequence.
    """

    flops_per_byte: float
    batch: float
    binds: bool


def flops_per_byte(hardware: Hardware, dtype: str) -> float:
    """Operations that the peak of arithmetic allows for a byte that the peak of memory reads."""
    return hardware.peak_flops[dtype] / hardware.memory_bytes_per_second


def ridge(model: RooflineModel, hardware: Hardware, dtype: str, context: float) -> Ridge:
    """Of decodes at so long contexts."""
    products = (model.flops_per_token + model.flops_per_sample) / model.flops_per_second
    products += model.decode_flops_per_attended * context / model.flops_per_second
    reading = model.decode_kv_bytes * context / model.bytes_per_second
    weights = (model.weight_bytes + model.expert_bytes) / model.bytes_per_second
    return Ridge(
        flops_per_byte=flops_per_byte(hardware, dtype),
        batch=weights / products,
        binds=products > reading,
    )
