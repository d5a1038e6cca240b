"""A step's time from what it reads and multiplies, and from what a machine reads and multiplies.

    weights     bytes of weights, read once: of the experts, those that its tokens go through
    kv          bytes of keys and values of the tokens attended
    products    operations of the layers for each token, of the output projection for each sample
    attention   operations for each pair of a token and one that it attends, in half a square for
                a prompt: the quadratic part
    overhead    whatever the step's size

`combine` says how they make a step: "max", the slower of memory and arithmetic, which is right
when the two overlap perfectly; "sum", when they do not at all; "parts", when they do within the
products and within attention, but those come one after the other. Overhead is always added.

Not counted: writing keys and values, activations, exchange between devices.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headway.simulator.step_time.base import StepShape
from headway.simulator.step_time.hardware import Hardware
from headway.simulator.step_time.model_shape import ModelShape, bytes_of

Terms = tuple[float, float, float, float]  # weights, kv, products, attention

_COMBINE: Mapping[str, Callable[[float, float, float, float], float]] = {
    "max": lambda weights, kv, products, attention: max(weights + kv, products + attention),
    "sum": lambda weights, kv, products, attention: weights + kv + products + attention,
    "parts": lambda weights, kv, products, attention: max(weights, products) + max(kv, attention),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineModel:
    """A StepTimeModel of a dozen numbers, for one device of those that share the model.

    What is 0 is not counted. `expert_share`: of its layer's experts, the share that a token goes
    through; tokens choose independently. `prefill_attended_shift` is added to what each prefill
    token attends: -0.5 makes exactly p²/2 of a prompt of p.
    """

    weight_bytes: float
    expert_bytes: float = 0.0
    expert_share: float = 0.0
    flops_per_token: float
    flops_per_sample: float = 0.0
    prefill_flops_per_attended: float = 0.0
    decode_flops_per_attended: float = 0.0
    prefill_attended_shift: float = 0.0
    prefill_kv_bytes: float = 0.0  # per token of a prefill's context, itself included
    decode_kv_bytes: float = 0.0  # per token that a decode attends
    bytes_per_second: float
    flops_per_second: float
    overhead_ns: float = 0.0
    combine: str = "max"

    def __post_init__(self) -> None:
        if self.combine not in _COMBINE:
            raise ValueError(f"combine must be one of {', '.join(_COMBINE)}, got {self.combine!r}")
        if self.bytes_per_second <= 0 or self.flops_per_second <= 0:
            raise ValueError("bytes_per_second and flops_per_second must be above 0")
        if not 0 <= self.expert_share <= 1:
            raise ValueError(f"expert_share must be in [0, 1], got {self.expert_share}")

    def step_ns(self, shape: StepShape) -> int:
        busy_s = _COMBINE[self.combine](*self._seconds(shape))
        return max(1, round(busy_s * 1e9 + self.overhead_ns))

    def terms_ns(self, shape: StepShape) -> Mapping[str, float]:
        weights, kv, products, attention = self._seconds(shape)
        return {
            "weights": weights * 1e9,
            "kv": kv * 1e9,
            "products": products * 1e9,
            "attention": attention * 1e9,
            "overhead": self.overhead_ns,
        }

    def _seconds(self, shape: StepShape) -> Terms:
        tokens, prefill_tokens = shape.num_tokens, shape.num_prefill_tokens
        kv_bytes = (
            self.decode_kv_bytes * shape.decode_attended
            + self.prefill_kv_bytes * shape.prefill_context
        )
        products = self.flops_per_token * tokens + self.flops_per_sample * shape.num_samples
        pairs = shape.prefill_attended + self.prefill_attended_shift * prefill_tokens
        attention = (
            self.prefill_flops_per_attended * pairs
            + self.decode_flops_per_attended * shape.decode_attended
        )
        return (
            self._weight_bytes_for(tokens) / self.bytes_per_second,
            kv_bytes / self.bytes_per_second,
            products / self.flops_per_second,
            attention / self.flops_per_second,
        )

    def _weight_bytes_for(self, num_tokens: int) -> float:
        if not self.expert_bytes:
            return self.weight_bytes
        missed: float = (1.0 - self.expert_share) ** num_tokens
        return self.weight_bytes + self.expert_bytes * (1.0 - missed)


def roofline(
    model: ModelShape,
    hardware: Hardware,
    *,
    weight_dtype: str = "bf16",
    kv_dtype: str = "bf16",
    compute_dtype: str | None = None,
    tensor_parallel: int = 1,
    combine: str = "max",
) -> RooflineModel:
    """The model on the hardware, everything counted.

    `compute_dtype`: of the products; None takes that of the weights where the hardware multiplies
    it and bf16 elsewhere. `tensor_parallel` divides bytes and operations among so many devices;
    their exchange costs nothing here: put it into `hardware.overhead_ns`. Raises ValueError.
    """
    if compute_dtype is None:
        compute_dtype = weight_dtype if weight_dtype in hardware.peak_flops else "bf16"
    kv_bytes = model.kv_bytes_per_token(kv_dtype) / model.kv_share(tensor_parallel)
    pair_flops = model.attention_flops_per_pair / tensor_parallel
    weight = bytes_of(weight_dtype) / tensor_parallel
    experts = model.num_experts
    return RooflineModel(
        weight_bytes=model.num_dense_parameters * weight,
        expert_bytes=model.num_expert_parameters * weight,
        expert_share=model.experts_per_token / experts if experts else 0.0,
        flops_per_token=model.flops_per_token / tensor_parallel,
        flops_per_sample=model.flops_per_sample / tensor_parallel,
        prefill_flops_per_attended=pair_flops,
        decode_flops_per_attended=pair_flops,
        prefill_kv_bytes=kv_bytes,
        decode_kv_bytes=kv_bytes,
        bytes_per_second=hardware.bytes_per_second,
        flops_per_second=hardware.flops(compute_dtype),
        overhead_ns=hardware.overhead_ns,
        combine=combine,
    )
