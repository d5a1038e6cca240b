"""The steps that computed prompts, and how long each held up those who decoded."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from headway.insight.explain.report import Holder, Stall, StalledBy

MOST_STEPS = 8192  # remembered, of the latest
HANDFUL = 5


class PromptStep(NamedTuple):
    number: int
    start_ns: int
    end_ns: int
    stall_ns: int  # the part of it that is there because of its prompts, while others decoded
    prompts: tuple[tuple[str, int], ...]  # request id, tokens


@dataclass(slots=True)
class _Share:
    ns: int = 0
    steps: int = 0
    tokens: int = 0


class PromptSteps:
    """The latest of them. `stalled_ns`: of all there ever were."""

    def __init__(self, most: int = MOST_STEPS) -> None:
        self.stalled_ns = 0
        self._steps: deque[PromptStep] = deque(maxlen=most)

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, step: PromptStep) -> None:
        self.stalled_ns += step.stall_ns
        self._steps.append(step)

    def stall(self, windows: Sequence[tuple[int, int]], stalled_ns: int) -> Stall:
        """Whose prompts held up a sequence that decoded in these windows, for so long in all."""
        steps = [step for step in self._during(windows) if step.stall_ns]
        shares: dict[str, _Share] = {}
        for step in steps:
            for (request_id, tokens), ns in zip(step.prompts, _split(step), strict=True):
                share = shares.setdefault(request_id, _Share())
                share.ns += ns
                share.steps += 1
                share.tokens += tokens
        ordered = sorted(shares.items(), key=lambda item: -item[1].ns)
        by = tuple(
            StalledBy(request_id=name, ns=share.ns, steps=share.steps, tokens=share.tokens)
            for name, share in ordered[:HANDFUL]
        )
        known_ns = sum(step.stall_ns for step in steps)
        longest = max(steps, key=lambda step: step.stall_ns, default=None)
        return Stall(
            steps=len(steps),
            by=by,
            others_ns=known_ns - sum(one.ns for one in by),
            unknown_ns=max(0, stalled_ns - known_ns),
            longest_ns=longest.stall_ns if longest else 0,
            longest_step=longest.number if longest else None,
        )

    def holders(self, windows: Sequence[tuple[int, int]], but: str) -> tuple[Holder, ...]:
        """Whose prompts were computed in these windows, the most tokens first."""
        shares: dict[str, _Share] = {}
        for step in self._during(windows):
            for request_id, tokens in step.prompts:
                if request_id != but:
                    share = shares.setdefault(request_id, _Share())
                    share.ns += step.end_ns - step.start_ns
                    share.tokens += tokens
        ordered = sorted(shares.items(), key=lambda item: -item[1].tokens)
        return tuple(
            Holder(request_id=name, held_ns=share.ns, tokens=share.tokens)
            for name, share in ordered[:HANDFUL]
        )

    def _during(self, windows: Sequence[tuple[int, int]]) -> Iterator[PromptStep]:
        """The latest first."""
        if not windows:
            return
        first_ns = min(start_ns for start_ns, _ in windows)
        for step in reversed(self._steps):
            if step.end_ns <= first_ns:
                return
            if any(start <= step.start_ns and step.end_ns <= end for start, end in windows):
                yield step


def _split(step: PromptStep) -> Iterator[int]:
    """The stall by tokens, so that it adds up."""
    num_left, left_ns = sum(tokens for _, tokens in step.prompts), step.stall_ns
    for _, tokens in step.prompts:
        ns = left_ns * tokens // num_left
        num_left, left_ns = num_left - tokens, left_ns - ns
        yield ns
