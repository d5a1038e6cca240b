"""Draws of article 1's workload by its reconstructed law, and its runs on them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from statistics import median

import numpy as np
import numpy.typing as npt

from tests.lessons.drain import SETTINGS, UNIFORM, Drained, drain

COUNT, SPREAD = 256, 16  # of the longest to the shortest, of prompts and outputs
PROMPT_TOTAL, OUTPUT_TOTAL = 350_309, 65_536  # as printed
SEEDS = range(5)


@functools.cache
def drawn(seed: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Prompts and outputs: log-uniform, rescaled to their totals, rounded."""
    uniforms = np.random.Generator(np.random.PCG64(seed)).random((2, COUNT))
    prompts, outputs = SPREAD**uniforms
    return _rescaled(prompts, PROMPT_TOTAL), _rescaled(outputs, OUTPUT_TOTAL)


def _rescaled(lengths: npt.NDArray[np.float64], total: int) -> tuple[int, ...]:
    return tuple(np.rint(lengths * (total / lengths.sum())).astype(int).tolist())


def drained(name: str, seed: int, *, starts_over: bool = True) -> Drained:
    prompts, outputs = drawn(seed)
    setting = {"outputs": outputs, **SETTINGS[name]}
    assert setting["outputs"] in (outputs, UNIFORM)
    return drain(prompts=prompts, starts_over=starts_over, **setting)


def middle(of: Callable[[Drained], float], name: str, *, starts_over: bool = True) -> float:
    """The median of a figure of the run over the seeds."""
    return median(of(drained(name, seed, starts_over=starts_over)) for seed in SEEDS)
