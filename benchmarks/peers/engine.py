"""What the comparison asks of an engine. Runs in the peer's interpreter: standard library only."""

from __future__ import annotations

import abc
import itertools
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

Item = tuple[list[int], int]  # prompt, number of tokens to generate
CLASSES = ("bf16", "int8", "int4")
MAX_BATCH = 64
CHUNK_TOKENS = 512  # of prompts in one step, where an engine lets it be said


@dataclass(frozen=True)
class Setup:
    """`folder` holds a model in every form (models.py); `program` is the peer's own, if it has one.

    `kv_tokens`: the most that will be in the cache at once. `max_len`: of one sequence.
    """

    folder: Path
    weights: str
    num_threads: int
    kv_tokens: int
    kv_bytes_per_token: int
    max_len: int
    program: str | None = None

    @property
    def kv_bytes(self) -> int:
        return self.kv_tokens * self.kv_bytes_per_token


class Engine(abc.ABC):
    """A loaded model. Greedy, the end of sequence ignored, no prompt remembered from before."""

    version: str
    settings: str  # what was chosen for it, for the record

    def ready(self, items: Sequence[Item], *, together: bool) -> None:  # noqa: B027
        """Called before `items` are measured, outside the time; `together`: none may wait."""

    @abc.abstractmethod
    def generate(self, items: Sequence[Item]) -> float:
        """Asks for all at once; seconds until all are done.

        Raises RuntimeError where a count of tokens is not as asked.
        """

    def decode(self, items: Sequence[Item]) -> list[float]:
        """Seconds per step while all of `items` are being decoded and none is done.

        Here, for engines that show no steps: two runs, one of them a single token long.
        """
        count = min(count for _, count in items)
        first = self.generate([(prompt, 1) for prompt, _ in items])
        both = self.generate([(prompt, count) for prompt, _ in items])
        return [(both - first) / (count - 1)]

    def close(self) -> None:  # noqa: B027
        """Ends what would outlive the process."""


def steps_between(
    seen: Sequence[tuple[float, Sequence[int]]], wanted: Sequence[int]
) -> list[float]:
    """Seconds of each step in which every sequence made one token.

    `seen`: after each step the time and how many tokens each sequence has.
    Raises RuntimeError where they never ran all at once.
    """
    seconds = []
    for (before, had), (after, have) in itertools.pairwise(seen):
        if min(had) >= 1 and all(h < w for h, w in zip(had, wanted, strict=True)):
            made = statistics.median(b - a for a, b in zip(had, have, strict=True))
            if made:
                seconds.append((after - before) / made)
    if not seconds:
        raise RuntimeError("the sequences never ran all at once")
    return seconds


def check(counts: Sequence[int], items: Sequence[Item]) -> None:
    wanted = [count for _, count in items]
    if list(counts) != wanted:
        raise RuntimeError(f"asked for {wanted} tokens, got {list(counts)}")
