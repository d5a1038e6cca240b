"""Tables of cos and sin for rotary position embedding (Su et al., 2021) and its extensions."""

from __future__ import annotations

import math

import numpy as np

from headway.model.shape import RopeConfig
from headway.ops.interface import F32
from headway.ops.program import Rotation

_FIRST_ROWS = 4096


class RopeTables:
    """cos and sin by position, float32 [rows, rotary_dim / 2]; longer when a batch needs it.

    Rows once computed are kept, so that a position's bits never change.
    """

    def __init__(self, rope: RopeConfig, max_positions: int, divisors: F32 | None = None) -> None:
        """`divisors` [rotary_dim / 2] divide the frequencies (a GGUF file's `rope_freqs`)."""
        frequencies = inverse_frequencies(rope)
        self._frequencies = frequencies if divisors is None else frequencies / divisors
        self._attention_factor = rope.attention_factor
        self._max_positions = max_positions
        empty = np.empty((0, len(frequencies)), dtype=np.float32)
        self.cos, self.sin = empty, empty
        self.reach(min(max_positions, _FIRST_ROWS))

    def reach(self, num_positions: int) -> None:
        """Make positions [0, num_positions) available, as far as the model goes."""
        have, wanted = len(self.cos), min(num_positions, self._max_positions)
        if wanted > have:
            wanted = min(max(wanted, 2 * have), self._max_positions)
            cos, sin = self._rows(have, wanted)
            self.cos = np.concatenate([self.cos, cos])
            self.sin = np.concatenate([self.sin, sin])

    def _rows(self, first: int, end: int) -> tuple[F32, F32]:
        positions = np.arange(first, end, dtype=np.float32)
        # The angle is rounded to float32, as models were trained; cos and sin of it are exact.
        angles = np.outer(positions, self._frequencies).astype(np.float32).astype(np.float64)
        cos = (np.cos(angles) * self._attention_factor).astype(np.float32)
        sin = (np.sin(angles) * self._attention_factor).astype(np.float32)
        return cos, sin


def rotation(tables: RopeTables, *, has_still_layers: bool) -> Rotation:
    """The tables, and, for a model with layers that do not rotate, some that turn nothing."""
    cos, sin = tables.cos, tables.sin
    if not has_still_layers:
        return Rotation(cos, sin, cos, sin)
    return Rotation(cos, sin, np.ones_like(cos), np.zeros_like(sin))


def inverse_frequencies(rope: RopeConfig) -> F32:
    """float32 [rotary_dim / 2], falling, with the extension of `rope.kind` applied."""
    exponents = np.arange(0, rope.rotary_dim, 2, dtype=np.float32) / np.float32(rope.rotary_dim)
    frequencies = 1.0 / (np.float32(rope.theta) ** exponents)
    match rope.kind:
        case "linear":
            frequencies = frequencies / np.float32(rope.factor)
        case "llama3":
            frequencies = _llama3(rope, frequencies)
        case "yarn":
            frequencies = _yarn(rope, frequencies)
    return np.asarray(frequencies, dtype=np.float32)


def _llama3(rope: RopeConfig, frequencies: F32) -> F32:
    """Long waves are stretched by `factor`, short ones kept, those between interpolated."""
    turns = rope.original_max_position_embeddings * frequencies / np.float32(2 * math.pi)
    span = rope.high_freq_factor - rope.low_freq_factor
    keep = np.clip((turns - rope.low_freq_factor) / span, 0.0, 1.0)
    scaled: F32 = (1 - keep) * frequencies / rope.factor + keep * frequencies
    return scaled


def _yarn(rope: RopeConfig, frequencies: F32) -> F32:
    """YaRN (Peng et al., 2023): dimensions that turn often are kept, seldom ones stretched."""
    low = _dimension_with_turns(rope, rope.beta_fast)
    high = _dimension_with_turns(rope, rope.beta_slow)
    if rope.truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, rope.rotary_dim - 1)
    if low == high:
        high += 0.001
    dimensions = np.arange(rope.rotary_dim // 2, dtype=np.float32)
    stretch = np.clip((dimensions - low) / (high - low), 0.0, 1.0).astype(np.float32)
    scaled: F32 = frequencies / np.float32(rope.factor) * stretch + frequencies * (1 - stretch)
    return scaled


def _dimension_with_turns(rope: RopeConfig, turns: float) -> float:
    """The dimension whose wave turns `turns` times within the original context."""
    waves = rope.original_max_position_embeddings / (turns * 2 * math.pi)
    return rope.rotary_dim * math.log(waves) / (2 * math.log(rope.theta))
