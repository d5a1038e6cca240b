"""Runs of the same prompts alone and under load, held against each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from headway.insight.verify.difference import Difference, Output, drift, first_difference

# Two tokens that move further than this against each other are hardly a matter of rounding:
# bfloat16 keeps a logit of 16 to 32 to within an eighth, and there are two of them in two runs.
ROUNDING_NATS = 0.5
ALONE = 1
_ID = "token_id:"

Basis = Literal["token ids", "tokens", "text"]


@dataclass(frozen=True, slots=True)
class Failure:
    """A request that got no answer, and why, in one sentence. `status`: of HTTP, if it got one."""

    reason: str
    status: int | None = None


Outcome = Output | Failure


@dataclass(slots=True)
class Run:
    """All prompts once, `concurrency` requests in flight. Filled by who asks, as answers come."""

    concurrency: int
    round_index: int  # from 0
    outcomes: dict[int, Outcome] = field(default_factory=dict)  # by index of the prompt
    stranger_failures: list[str] = field(default_factory=list)  # reasons


@dataclass(frozen=True, slots=True)
class Comparison:
    """One output held against that of the same prompt alone."""

    prompt_index: int
    concurrency: int
    round_index: int
    difference: Difference | None
    drift: float | None


@dataclass(frozen=True, slots=True)
class FailedRequest:
    prompt_index: int
    concurrency: int
    round_index: int
    reason: str


@dataclass(frozen=True, slots=True)
class Level:
    """What was found with so many requests in flight."""

    concurrency: int
    comparisons: Sequence[Comparison]
    num_failed: int

    @property
    def different(self) -> list[Comparison]:
        return [each for each in self.comparisons if each.difference]

    @property
    def num_drifted(self) -> int:
        """Equal outputs whose logprobs are others."""
        return sum(bool(each.drift) and each.difference is None for each in self.comparisons)

    @property
    def first_token_index(self) -> int | None:
        return min(
            (
                each.difference.token_index
                for each in self.different
                if each.difference and each.difference.token_index is not None
            ),
            default=None,
        )

    @property
    def largest_drift(self) -> float | None:
        return max(
            (each.drift for each in self.comparisons if each.drift is not None), default=None
        )


@dataclass(frozen=True, slots=True)
class Report:
    """The reference of a prompt is its first answer alone.

    `without_reference`: prompts that never got an answer alone, and so were not compared.
    """

    num_prompts: int
    basis: Basis  # what all answers have, and so what was compared
    levels: Sequence[Level]
    failures: Sequence[FailedRequest]
    without_reference: Sequence[int]
    stranger_failures: Sequence[str]

    @property
    def comparisons(self) -> Iterator[Comparison]:
        return (each for level in self.levels for each in level.comparisons)

    @property
    def different(self) -> list[Comparison]:
        return [each for level in self.levels for each in level.different]

    @property
    def num_drifted(self) -> int:
        return sum(level.num_drifted for level in self.levels)

    @property
    def unsteady(self) -> list[int]:
        """Prompts whose output is not even the same alone."""
        alone = (level for level in self.levels if level.concurrency == ALONE)
        return sorted({each.prompt_index for level in alone for each in level.different})

    @property
    def beyond_rounding(self) -> list[Comparison]:
        """Differences at which the two tokens moved by more than rounding explains."""
        return [
            each
            for each in self.different
            if each.difference
            and each.difference.swing
            and each.difference.swing.nats > ROUNDING_NATS
        ]

    def to_dict(self) -> dict[str, Any]:
        return {
            "num_prompts": self.num_prompts,
            "compared": self.basis,
            "num_compared": len(list(self.comparisons)),
            "num_different": len(self.different),
            "num_other_logprobs": self.num_drifted,
            "num_failed": len(self.failures),
            "unsteady_alone": self.unsteady,
            "without_reference": list(self.without_reference),
            "stranger_failures": Counter(self.stranger_failures),
            "levels": [_level_dict(level) for level in self.levels],
            "differences": [_comparison_dict(each) for each in self.different],
            "failures": [asdict(failure) for failure in self.failures],
        }


def compare(runs: Sequence[Run], num_prompts: int) -> Report:
    """Hold every output against the first one alone of its prompt."""
    references = _references(runs)
    failures = [
        FailedRequest(index, run.concurrency, run.round_index, outcome.reason)
        for run in runs
        for index, outcome in run.outcomes.items()
        if isinstance(outcome, Failure)
    ]
    return Report(
        num_prompts=num_prompts,
        basis=_basis(runs),
        levels=_levels(runs, references, failures),
        failures=failures,
        without_reference=[index for index in range(num_prompts) if index not in references],
        stranger_failures=[reason for run in runs for reason in run.stranger_failures],
    )


def _levels(
    runs: Sequence[Run], references: Mapping[int, Output], failures: Sequence[FailedRequest]
) -> list[Level]:
    found: dict[int, list[Comparison]] = {}
    for run in runs:
        found.setdefault(run.concurrency, []).extend(_compared(run, references))
    num_failed = Counter(failure.concurrency for failure in failures)
    return [Level(each, comparisons, num_failed[each]) for each, comparisons in found.items()]


def _basis(runs: Sequence[Run]) -> Basis:
    outcomes = (outcome for run in runs for outcome in run.outcomes.values())
    outputs = [outcome for outcome in outcomes if isinstance(outcome, Output)]
    if not outputs or any(output.tokens is None for output in outputs):
        return "text"
    names = (token.name for output in outputs for token in output.tokens or ())
    return "token ids" if all(name.startswith(_ID) for name in names) else "tokens"


def _references(runs: Sequence[Run]) -> dict[int, Output]:
    found: dict[int, Output] = {}
    for run in runs:
        for index, outcome in run.outcomes.items():
            if run.concurrency == ALONE and isinstance(outcome, Output):
                found.setdefault(index, outcome)
    return found


def _compared(run: Run, references: Mapping[int, Output]) -> Iterator[Comparison]:
    for index, outcome in sorted(run.outcomes.items()):
        reference = references.get(index)
        if reference is None or outcome is reference or isinstance(outcome, Failure):
            continue
        yield Comparison(
            index,
            run.concurrency,
            run.round_index,
            first_difference(reference, outcome),
            drift(reference, outcome),
        )


def _level_dict(level: Level) -> dict[str, Any]:
    return {
        "concurrency": level.concurrency,
        "num_compared": len(level.comparisons),
        "num_different": len(level.different),
        "num_other_logprobs": level.num_drifted,
        "num_failed": level.num_failed,
        "first_token_index": level.first_token_index,
        "largest_drift": level.largest_drift,
    }


def _comparison_dict(each: Comparison) -> dict[str, Any]:
    assert each.difference is not None
    swing = each.difference.swing
    return {**asdict(each), "swing": None if swing is None else asdict(swing)}
