"""Steps of all kinds, and times of a known law."""

from __future__ import annotations

import numpy as np

from headway.simulator.step_time.base import PlacedChunk, StepShape, shape_of
from headway.simulator.step_time.observations import Observations


def shapes(count: int, seed: int = 0) -> list[StepShape]:
    """Decodes of up to 63 sequences, prompts in chunks, and both together."""
    rng = np.random.default_rng(seed)
    return [_shape(rng) for _ in range(count)]


def _shape(rng: np.random.Generator) -> StepShape:
    num_decodes = int(rng.integers(0, 64)) if rng.random() < 0.8 else 0
    chunks = [PlacedChunk(int(c), 1, 20, True) for c in rng.integers(20, 2000, num_decodes)]
    if not chunks or rng.random() < 0.4:
        first, tokens = int(rng.integers(0, 1500)), int(rng.integers(2, 512))
        chunks.append(PlacedChunk(first, tokens, 3000, bool(rng.random() < 0.5)))
    return shape_of(chunks)


def law_ns(shape: StepShape) -> float:
    """Flat up to 16 tokens, linear from there, with a price of sampling and of attention."""
    return (
        4e6
        + 6e4 * max(0, shape.num_tokens - 16)
        + 1.2e6 * (shape.num_samples > 0)
        + 2e4 * shape.num_samples
        + 300 * shape.decode_attended
        + 40 * shape.prefill_attended
    )


def observed(
    count: int, *, noise: float = 0.0, outliers: float = 0.0, seed: int = 0
) -> Observations:
    """Steps that took what the law says, give or take; a share of them up to four times that."""
    rng = np.random.default_rng(seed + 1)
    steps = []
    for shape in shapes(count, seed):
        slow = rng.uniform(1.3, 4) if rng.random() < outliers else 1.0
        steps.append((shape, int(law_ns(shape) * (1 + noise * rng.standard_normal()) * slow)))
    return Observations.of(steps)
