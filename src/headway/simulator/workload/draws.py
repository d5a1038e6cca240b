"""Random numbers: a stream for each purpose, so that changing one law leaves the rest alone."""

from __future__ import annotations

from enum import IntEnum

import numpy as np

from headway.simulator.workload.exact_math import Floats

BLOCK = 1024  # draws at once; what is drawn does not depend on it


class Purpose(IntEnum):
    """What a stream of random numbers is for. The numbers are part of what a seed means."""

    ARRIVAL = 0
    PROMPT = 1
    OUTPUT = 2
    PREFIX = 3
    PREFIX_LENGTH = 4
    TURNS = 5
    THINK = 6
    TENANT = 7
    PRIORITY = 8
    ADAPTER = 9
    LEAVES = 10
    PATIENCE = 11
    LATER_PROMPT = 12
    PAUSE = 13


class Uniforms:
    """Numbers in [0, 1), multiples of 2^-53: PCG64 seeded by (seed, part, purpose).

    Only the raw generator is used, whose output numpy promises to keep.
    """

    def __init__(self, seed: int, part: int, purpose: Purpose) -> None:
        sequence = np.random.SeedSequence(seed, spawn_key=(part, int(purpose)))
        self._generator = np.random.Generator(np.random.PCG64(sequence))

    def take(self, count: int) -> Floats:
        return self._generator.random(count)
