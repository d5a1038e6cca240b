"""Twin of `sample`: temperature, top-k, top-p, min-p, and a draw by inverse CDF."""

from __future__ import annotations

import numpy as np

from headway.ops.interface import F32, I32, I64, U64
from headway.ops.reference.philox import uniform


def sample(
    logits: F32,
    temperature: F32,
    top_k: I32,
    top_p: F32,
    min_p: F32,
    seeds: U64,
    positions: I64,
    out: I32,
) -> None:
    """One token id per row of [R, V]. NaN counts as -inf; a row with no number at all yields 0."""
    for i, row in enumerate(logits):
        draw = uniform(int(seeds[i]), int(positions[i]))
        out[i] = sample_row(row, temperature[i], int(top_k[i]), top_p[i], min_p[i], draw)


def sample_row(
    logits: F32, temperature: float, top_k: int, top_p: float, min_p: float, draw: float
) -> int:
    """Every filter keeps a prefix of the ids in order of falling logit, lower id on a tie."""
    numbers = np.where(np.isnan(logits), np.float32(-np.inf), logits)
    order = np.argsort(-numbers, kind="stable")
    if temperature == 0 or np.isneginf(numbers[order[0]]):
        return int(order[0])
    weights = falling_weights(numbers[order], temperature)
    if top_k > 0:
        weights = weights[:top_k]
    if top_p < 1:
        reached = np.cumsum(weights)
        weights = weights[: int(np.argmax(reached >= np.float64(top_p) * reached[-1])) + 1]
    weights = weights[weights >= min_p]
    cumulative = np.cumsum(weights)
    chosen = int(np.searchsorted(cumulative, draw * cumulative[-1], side="right"))
    return int(order[min(chosen, len(weights) - 1)])


def falling_weights(sorted_logits: F32, temperature: float) -> np.ndarray:
    """exp((x - max) / temperature) as float64; exactly 1 for the largest, even when it is +inf."""
    largest = sorted_logits[0]
    with np.errstate(invalid="ignore", over="ignore"):
        shifted = (sorted_logits - largest) / np.float32(temperature)
    return np.exp(np.where(sorted_logits == largest, 0, shifted).astype(np.float64))
