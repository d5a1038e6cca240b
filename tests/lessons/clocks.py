"""The articles' clocks, as rooflines that leave out what the articles leave out."""

from __future__ import annotations

from headway.simulator.step_time.base import PlacedChunk, StepShape, shape_of
from headway.simulator.step_time.hardware import hardware_named
from headway.simulator.step_time.models import shape_named
from headway.simulator.step_time.roofline import RooflineModel

H100 = hardware_named("h100")
PEAK_READ, PEAK_BF16 = H100.memory_bytes_per_second, H100.peak_flops["bf16"]
QWEN = shape_named("Qwen3-8B")
LLAMA = shape_named("Llama-3-8B")

WEIGHTS_1 = 15.26 * 2**30
CLOCK_1 = RooflineModel(
    weight_bytes=WEIGHTS_1,
    flops_per_token=WEIGHTS_1,  # two operations for each parameter, two bytes each
    decode_kv_bytes=QWEN.kv_bytes_per_token(),
    bytes_per_second=0.80 * PEAK_READ,
    flops_per_second=0.70 * PEAK_BF16,
)
PARAMETERS_2 = 8.0e9
CLOCK_2 = RooflineModel(
    weight_bytes=2 * PARAMETERS_2,
    flops_per_token=2 * PARAMETERS_2,
    prefill_flops_per_attended=LLAMA.attention_flops_per_pair,
    prefill_attended_shift=-0.5,
    decode_kv_bytes=LLAMA.kv_bytes_per_token(),
    bytes_per_second=0.80 * PEAK_READ,
    flops_per_second=0.60 * PEAK_BF16,
    overhead_ns=500_000,
)
CONTEXT_2 = 1125  # mean prompt and half the mean output


def decode_ms(batch: int) -> float:
    """A step of article 2 that decodes so many sequences of the mean context."""
    shape = StepShape(num_decode_tokens=batch, decode_attended=batch * CONTEXT_2, num_samples=batch)
    return CLOCK_2.step_ns(shape) / 1e6


def prefill_ms(num_tokens: int) -> float:
    """A step of article 2 with one prompt in it."""
    return CLOCK_2.step_ns(shape_of([PlacedChunk(0, num_tokens, num_tokens, True)])) / 1e6
