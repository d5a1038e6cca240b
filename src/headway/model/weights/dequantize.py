"""GGML's block quantisations back to float32, one block per row, vectorised over blocks.

Each function takes blocks uint8 [n, num_bytes] and gives float32 [n, num_values]. `d` is a block's
scale, `m` its minimum, `q` its small integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from headway.ops.bfloat16 import from_bf16
from headway.ops.interface import F32

Blocks = npt.NDArray[np.uint8]
Ints = npt.NDArray[Any]

_SUPER = 256  # values of a "K" block

# The 16 levels of the nonlinear 4-bit types, and of a 4-bit float times two.
_IQ4_LEVELS = np.array(
    [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], dtype=np.float32
)
_FP4_LEVELS = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], dtype=np.float32)


class BlockType(NamedTuple):
    type_id: int  # in the file
    num_values: int
    num_bytes: int
    decode: Callable[[Blocks], F32]


def dequantize(blocks: Blocks, type_name: str) -> F32:
    """blocks uint8 [n, num_bytes] of a type in BLOCK_TYPES, to float32 [n, num_values]."""
    # Scales in a damaged file may be inf or NaN; the values then are too, and that is not news.
    with np.errstate(all="ignore"):
        return BLOCK_TYPES[type_name].decode(np.ascontiguousarray(blocks))


def half(blocks: Blocks, start: int) -> F32:
    """The float16 at byte `start` of every block, [n, 1]."""
    return np.ascontiguousarray(blocks[:, start : start + 2]).view("<f2").astype(np.float32)


def nibbles(packed: Blocks) -> Ints:
    """[..., w] bytes to [..., 2 w]: all the low halves, then all the high ones."""
    return np.concatenate([packed & 0x0F, packed >> 4], axis=-1)


def bits_of(packed: Blocks) -> Ints:
    """[n, w] bytes to their bits [n, 8 w], lowest first."""
    return np.unpackbits(packed, axis=-1, bitorder="little")


def pairs_of_bits(packed: Blocks) -> Ints:
    """[n, w] bytes to [n, 4 w] two-bit numbers: all the lowest pairs, then the next ones ..."""
    return np.concatenate([(packed >> shift) & 3 for shift in (0, 2, 4, 6)], axis=-1)


def _f64(blocks: Blocks) -> F32:
    return blocks.view("<f8").astype(np.float32)


def _f32(blocks: Blocks) -> F32:
    values: F32 = blocks.view("<f4")
    return values


def _f16(blocks: Blocks) -> F32:
    return blocks.view("<f2").astype(np.float32)


def _bf16(blocks: Blocks) -> F32:
    return from_bf16(blocks.view("<u2"))


def _q4_0(blocks: Blocks) -> F32:
    q = nibbles(blocks[:, 2:18]).astype(np.float32)
    return half(blocks, 0) * (q - 8)


def _q4_1(blocks: Blocks) -> F32:
    q = nibbles(blocks[:, 4:20]).astype(np.float32)
    return half(blocks, 0) * q + half(blocks, 2)


def five_bits(blocks: Blocks, start: int) -> Ints:
    """32 numbers, their fifth bits first, from byte `start`."""
    return nibbles(blocks[:, start + 4 : start + 20]) | (bits_of(blocks[:, start : start + 4]) << 4)


def _q5_0(blocks: Blocks) -> F32:
    values: F32 = half(blocks, 0) * (five_bits(blocks, 2).astype(np.float32) - 16)
    return values


def _q5_1(blocks: Blocks) -> F32:
    values: F32 = half(blocks, 0) * five_bits(blocks, 4).astype(np.float32) + half(blocks, 2)
    return values


def _q8_0(blocks: Blocks) -> F32:
    return half(blocks, 0) * blocks[:, 2:34].view(np.int8).astype(np.float32)


def _q2_k(blocks: Blocks) -> F32:
    """16 groups of 16; a byte a group holds a 4-bit scale and a 4-bit minimum."""
    scales, d, m = blocks[:, :16], half(blocks, 80), half(blocks, 82)
    halves = [pairs_of_bits(blocks[:, start : start + 32]) for start in (16, 48)]
    q = np.concatenate(halves, axis=1).reshape(-1, 16, 16).astype(np.float32)
    scale = d * (scales & 0x0F).astype(np.float32)
    minimum = m * (scales >> 4).astype(np.float32)
    return (scale[:, :, None] * q - minimum[:, :, None]).reshape(-1, _SUPER)


def _q3_k(blocks: Blocks) -> F32:
    """16 groups of 16; the third bit of a value, when clear, takes 4 off."""
    masks, d = blocks[:, :32], half(blocks, 108)
    halves = [pairs_of_bits(blocks[:, start : start + 32]) for start in (32, 64)]
    low = np.concatenate(halves, axis=1).astype(np.int8)
    third = np.concatenate([(masks >> bit) & 1 for bit in range(8)], axis=1).astype(np.int8)
    q = (low - 4 + 4 * third).astype(np.float32).reshape(-1, 16, 16)
    scale_low = nibbles(blocks[:, 96:104])
    scale_high = pairs_of_bits(blocks[:, 104:108])
    scale = (scale_low | (scale_high << 4)).astype(np.float32) - 32
    values: F32 = ((d * scale)[:, :, None] * q).reshape(-1, _SUPER)
    return values


def six_bit_scales(packed: Blocks) -> tuple[F32, F32]:
    """12 bytes to 8 scales and 8 minimums of 6 bits: the last four of each lie in pieces."""
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = np.concatenate([first & 63, (third & 0x0F) | ((first >> 6) << 4)], axis=1)
    minimums = np.concatenate([second & 63, (third >> 4) | ((second >> 6) << 4)], axis=1)
    return scales.astype(np.float32), minimums.astype(np.float32)


def eighths(blocks: Blocks) -> tuple[F32, F32]:
    """Scales and minimums [n, 8] of the header that Q4_K and Q5_K share; a minimum is taken off."""
    scales, minimums = six_bit_scales(blocks[:, 4:16])
    return half(blocks, 0) * scales, half(blocks, 2) * minimums


def _scaled_eighths(q: Ints, blocks: Blocks) -> F32:
    """q [n, 256] in 8 groups of 32."""
    scale, minimum = (part[:, :, None] for part in eighths(blocks))
    values: F32 = scale * q.reshape(-1, 8, 32).astype(np.float32) - minimum
    return values.reshape(-1, _SUPER)


def q4_k_numbers(blocks: Blocks) -> Ints:
    return nibbles(blocks[:, 16:144].reshape(-1, 4, 32)).reshape(-1, _SUPER)


def _q4_k(blocks: Blocks) -> F32:
    return _scaled_eighths(q4_k_numbers(blocks), blocks)


def q5_k_numbers(blocks: Blocks) -> Ints:
    high = blocks[:, 16:48]
    fifth = np.concatenate([(high >> bit) & 1 for bit in range(8)], axis=1)
    return nibbles(blocks[:, 48:176].reshape(-1, 4, 32)).reshape(-1, _SUPER) | (fifth << 4)


def _q5_k(blocks: Blocks) -> F32:
    return _scaled_eighths(q5_k_numbers(blocks), blocks)


def q6_k_numbers(blocks: Blocks) -> Ints:
    low = nibbles(blocks[:, :128].reshape(-1, 2, 64)).reshape(-1, _SUPER)
    high = pairs_of_bits(blocks[:, 128:192].reshape(-1, 2, 32)).reshape(-1, _SUPER)
    return low | (high << 4)


def q6_k_scales(blocks: Blocks) -> F32:
    return half(blocks, 208) * blocks[:, 192:208].view(np.int8).astype(np.float32)


def _q6_k(blocks: Blocks) -> F32:
    q = q6_k_numbers(blocks).astype(np.float32).reshape(-1, 16, 16) - 32
    values: F32 = (q6_k_scales(blocks)[:, :, None] * q).reshape(-1, _SUPER)
    return values


def _iq4_nl(blocks: Blocks) -> F32:
    return half(blocks, 0) * _IQ4_LEVELS[nibbles(blocks[:, 2:18])]


def _iq4_xs(blocks: Blocks) -> F32:
    """8 groups of 32 with 6-bit scales: two high bits in a uint16, four low bits in nibbles."""
    high = np.ascontiguousarray(blocks[:, 2:4]).view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16)
    low = np.stack([blocks[:, 4:8] & 0x0F, blocks[:, 4:8] >> 4], axis=-1).reshape(-1, 8)
    scales = (low | ((high & 3) << 4)).astype(np.float32) - 32
    levels = _IQ4_LEVELS[nibbles(blocks[:, 8:136].reshape(-1, 8, 16))]
    values: F32 = ((half(blocks, 0) * scales)[:, :, None] * levels).reshape(-1, _SUPER)
    return values


def _threes(packed: Blocks, digits: int) -> Ints:
    """Base-3 digits of bytes that hold them as a fraction of 256: all the first ones, then ..."""
    powers = [3**digit for digit in range(digits)]
    fractions = [(packed.astype(np.uint16) * power & 0xFF) for power in powers]
    return np.concatenate([(fraction * 3) >> 8 for fraction in fractions], axis=-1)


def _tq1_0(blocks: Blocks) -> F32:
    """Ternary: five digits a byte, the last four bytes hold four."""
    parts = [_threes(blocks[:, :32], 5), _threes(blocks[:, 32:48], 5), _threes(blocks[:, 48:52], 4)]
    q = np.concatenate(parts, axis=1).astype(np.float32)
    return half(blocks, 52) * (q - 1)


def _tq2_0(blocks: Blocks) -> F32:
    """Ternary: two bits a digit."""
    q = pairs_of_bits(blocks[:, :64].reshape(-1, 2, 32)).reshape(-1, _SUPER)
    return half(blocks, 64) * (q.astype(np.float32) - 1)


def _mxfp4(blocks: Blocks) -> F32:
    """4-bit floats with a power of two per block; the levels are doubled, hence 128."""
    exponents = blocks[:, :1].astype(np.int32) - 128
    return np.ldexp(_FP4_LEVELS[nibbles(blocks[:, 1:17])], exponents).astype(np.float32)


BLOCK_TYPES = {
    "F32": BlockType(0, 1, 4, _f32),
    "F16": BlockType(1, 1, 2, _f16),
    "Q4_0": BlockType(2, 32, 18, _q4_0),
    "Q4_1": BlockType(3, 32, 20, _q4_1),
    "Q5_0": BlockType(6, 32, 22, _q5_0),
    "Q5_1": BlockType(7, 32, 24, _q5_1),
    "Q8_0": BlockType(8, 32, 34, _q8_0),
    "Q2_K": BlockType(10, _SUPER, 84, _q2_k),
    "Q3_K": BlockType(11, _SUPER, 110, _q3_k),
    "Q4_K": BlockType(12, _SUPER, 144, _q4_k),
    "Q5_K": BlockType(13, _SUPER, 176, _q5_k),
    "Q6_K": BlockType(14, _SUPER, 210, _q6_k),
    "IQ4_NL": BlockType(20, 32, 18, _iq4_nl),
    "IQ4_XS": BlockType(23, _SUPER, 136, _iq4_xs),
    "F64": BlockType(28, 1, 8, _f64),
    "BF16": BlockType(30, 1, 2, _bf16),
    "TQ1_0": BlockType(34, _SUPER, 54, _tq1_0),
    "TQ2_0": BlockType(35, _SUPER, 66, _tq2_0),
    "MXFP4": BlockType(39, 32, 17, _mxfp4),
}
