"""Philox-4x32-10, a counter-based generator (Salmon et al., 2011): a number, not a stream.

The number for (seed, position) is the same wherever, whenever and in whatever batch it is drawn.
"""

from __future__ import annotations

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
WORD = 0xFFFFFFFF


def philox4x32(counter: tuple[int, int, int, int], key: tuple[int, int]) -> tuple[int, ...]:
    """Four random 32-bit words for a 128-bit counter and a 64-bit key."""
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(ROUNDS):
        product0, product1 = MULTIPLIERS[0] * c0, MULTIPLIERS[1] * c2
        c0, c1, c2, c3 = (
            (product1 >> 32) ^ c1 ^ k0,
            product1 & WORD,
            (product0 >> 32) ^ c3 ^ k1,
            product0 & WORD,
        )
        k0, k1 = (k0 + KEY_STEPS[0]) & WORD, (k1 + KEY_STEPS[1]) & WORD
    return c0, c1, c2, c3


def uniform(seed: int, position: int) -> float:
    """A double in [0, 1) for a 64-bit seed and position.

    key = (low, high word of seed), counter = (low, high word of position, 0, 0); the number is the
    upper 53 bits of (word 1 * 2^32 + word 0), times 2^-53.
    """
    counter = (position & WORD, (position >> 32) & WORD, 0, 0)
    words = philox4x32(counter, (seed & WORD, (seed >> 32) & WORD))
    return float(((words[1] << 32 | words[0]) >> 11) * 2.0**-53)
