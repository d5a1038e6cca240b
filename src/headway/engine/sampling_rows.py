"""What the rows of a step say about how to draw, as arrays: kept while the same rows come."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from headway.core.request import SamplingParams
from headway.core.sequence import Sequence
from headway.ops.interface import F32, I32, U64

_MASK64 = (1 << 64) - 1
_MOST = int(np.iinfo(np.int32).max)
_LARGEST, _SMALLEST = float(np.finfo(np.float32).max), float(np.finfo(np.float32).tiny)


def stream_seed(seed: int, index: int) -> int:
    """The 64-bit key of one of a request's n token streams (splitmix64 of seed and index)."""
    z = (seed + (index + 1) * 0x9E3779B97F4A7C15) & _MASK64
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK64
    return z ^ (z >> 31)


class RowSettings(NamedTuple):
    """Of one sequence, in the ranges of the arrays' types, and what else its rows need."""

    temperature: float
    top_k: int
    top_p: float
    min_p: float
    seed: int
    names_tokens: bool
    penalises: bool
    forces: bool
    reports: bool


def settings_of(sequence: Sequence) -> RowSettings:
    request = sequence.request
    params = request.sampling
    return RowSettings(
        # A float64 that is in range may round to a float32 that is not.
        temperature=min(params.temperature, _LARGEST),
        top_k=min(params.top_k, _MOST),
        top_p=max(params.top_p, _SMALLEST),
        min_p=params.min_p,
        seed=stream_seed(request.seed, sequence.index),
        names_tokens=bool(
            params.logit_bias
            or params.allowed_token_ids is not None
            or request.bad_word_ids
            or params.min_tokens
        ),
        penalises=_uses_penalties(params),
        forces=bool(request.forced_token_ids),
        reports=params.logprobs is not None,
    )


def _uses_penalties(params: SamplingParams) -> bool:
    return (
        params.repetition_penalty != 1.0
        or params.frequency_penalty != 0.0
        or params.presence_penalty != 0.0
    )


class SamplingRows:
    """The arrays that `Ops.sample` takes, and which rows want more than that."""

    def __init__(self, sequences: tuple[Sequence, ...], settings: list[RowSettings]) -> None:
        self.sequences = sequences
        columns = list(zip(*settings, strict=True))
        self.temperature: F32 = np.array(columns[0], np.float32)
        self.top_k: I32 = np.array(columns[1], np.int32)
        self.top_p: F32 = np.array(columns[2], np.float32)
        self.min_p: F32 = np.array(columns[3], np.float32)
        self.seeds: U64 = np.array(columns[4], np.uint64)
        self.masked, self.penalised, self.forced, self.reported = (
            [row for row, wants in enumerate(column) if wants] for column in columns[5:]
        )
        self.look_back = bool(self.masked or self.penalised or self.forced)  # at known tokens
