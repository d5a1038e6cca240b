"""Whether continuous batching is worth it for the answers of a file, and how much."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from headway.insight.doctor.findings import Confidence, Finding, Severity
from headway.insight.usage.answer import Ending
from headway.insight.usage.columns import Usage
from headway.simulator.batching import BATCH_SIZES, BatchingPoint, batching_curve, law_of
from headway.simulator.step_time.base import StepTimeModel

_JUDGED_AT = 64  # slots
_LITTLE, _MUCH = 1.1, 1.5  # gains
_MANY_IDLE = 2.0  # by slots alone


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchingAdvice:
    """`p50`, `p99`: output tokens that so many in a hundred answers do not exceed."""

    num_answers: int
    mean_prompt: float | None  # None where the file does not tell: prompts count as one token
    mean: float
    p50: int
    p99: int
    points: tuple[BatchingPoint, ...]  # by rising size

    @property
    def ratio(self) -> float:
        return self.p99 / self.p50

    @property
    def judged(self) -> BatchingPoint:
        """The point that the verdict is about."""
        return [p for p in self.points if p.batch_size <= _JUDGED_AT][-1]

    @property
    def verdict(self) -> str:
        gain, slots = self.judged.gain, self.judged.batch_size
        at = f"{gain:.2f} times the output tokens per second of static batching at {slots} slots"
        if gain >= _MUCH:
            return f"Continuous batching is worth much here: {at}."
        if gain >= _LITTLE:
            return f"Continuous batching is worth something here: {at}."
        if self.judged.slot_gain >= _MANY_IDLE:
            return (
                f"Continuous batching is worth little here ({at}), though slots would idle: most "
                "of the time goes into prompts. Look at the prefix cache and at shorter prompts."
            )
        return (
            f"Continuous batching is worth little here ({at}): answers are of much the same "
            "length. Look at how fast a step is: weights and cache that it reads, and prompts."
        )

    def finding(self) -> Finding:
        """The verdict among the doctor's findings."""
        point = self.judged
        prompts = "not told" if self.mean_prompt is None else f"{self.mean_prompt:,.0f} on average"
        return Finding(
            kind="batching-worth",
            severity=Severity.HEALTHY,
            title=self.verdict,
            evidence=(
                f"output tokens of {self.num_answers:,} answers: p50 {self.p50:,}, p99 "
                f"{self.p99:,} ({self.ratio:.1f} times), {self.mean:,.0f} on average; prompt "
                f"tokens: {prompts}",
                f"a static batch of {point.batch_size} would use {point.slot_share:.0%} of its "
                f"slots (mean answer over the longest of {point.batch_size})",
            ),
            confidence=Confidence.MEDIUM if self.mean_prompt is None else Confidence.HIGH,
        )


def batching_advice(
    usage: Usage,
    model: StepTimeModel,
    *,
    token_budget: int,
    batch_sizes: Iterable[int] = BATCH_SIZES,
    on_point: Callable[[BatchingPoint], None] = lambda point: None,
) -> BatchingAdvice:
    """Simulates; a few seconds. Raises ValueError if that is not possible with these answers."""
    is_whole = ~(usage.ended_by(Ending.ABORT) | usage.ended_by(Ending.ERROR))
    whole = usage.of(is_whole & (usage.lengths() > 0))
    if not len(whole):
        raise ValueError("no answer has an output and came to its end, so there is no length")
    outputs = whole.lengths().astype(np.int64)
    prompts = np.maximum(whole.prompt_tokens, 1).astype(np.int64)
    law = law_of(outputs)

    def told() -> Iterator[BatchingPoint]:
        for point in batching_curve(
            prompts, outputs, model, token_budget=token_budget, batch_sizes=batch_sizes
        ):
            on_point(point)
            yield point

    points = tuple(told())
    if not points:
        raise ValueError(
            f"answers of {outputs.mean():,.0f} tokens to prompts of {prompts.mean():,.0f} on "
            "average are too long to be simulated"
        )
    is_told = whole.prompt_tokens > 0
    return BatchingAdvice(
        num_answers=len(whole),
        mean_prompt=float(whole.prompt_tokens[is_told].mean()) if is_told.any() else None,
        mean=float(outputs.mean()),
        p50=law.quantile(0.50),
        p99=law.quantile(0.99),
        points=points,
    )
