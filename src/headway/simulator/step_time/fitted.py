"""A step's time from steps that were seen: a sum of terms that only ever add.

A term is so many nanoseconds for each of what it counts beyond `above`. Products of M rows cost
the same while the weights are what is waited for and grow with M after that: `tokens` above a few
knots follow that bend.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headway.simulator.step_time.base import StepShape
from headway.simulator.step_time.least_squares import F64, non_negative_least_squares
from headway.simulator.step_time.observations import Observations

# What can be counted of a step; a term's `name` is one of these names.
COUNTS = (
    "steps",
    "steps_that_sample",
    "steps_that_prefill",
    "tokens",
    "samples",
    "decodes",
    "decode_attended",
    "prefills",
    "prefill_attended",
    "prefill_context",
)
# Not fitted: hardly to be told from what is attended, on which a longer prompt depends.
_NOT_FITTED = ("prefill_context",)
# Not dropped however noisy the steps are: what any machine does in any step.
_NEEDED = ("tokens", "prefill_attended", "decode_attended")
_TOKEN_KNOTS = (1, 4, 8, 16, 32, 64, 128, 256)
_SAMPLE_KNOTS = (1, 8, 16, 32, 64)
MIN_STEPS = 40
_ROUNDS = 5
_LARGEST = int(np.iinfo(np.int64).max)
_OUTLIER = 4.0  # in standard deviations, as the median of the deviations gives them
_NEVER_AN_OUTLIER = 0.03  # of the step
_STALL = 10.0  # times what is predicted: a machine that slept


class Term(NamedTuple):
    """`ns` for each of what COUNTS calls `name`, above `above`."""

    name: str
    above: int
    ns: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FitErrors:
    """Of predictions, as shares of what was measured, on steps that the fit did not see.

    `total` has a sign: the predicted time of all of them together over the measured, less 1.
    """

    num_fitted: int
    num_left_out: int  # beside those: stalls
    num_held_out: int
    median: float
    p90: float
    total: float


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedModel:
    """A StepTimeModel. `fitted_on`: engine, model and machine, for people to read.

    `seen`: the least and the most of each count in the steps that it was fitted on; beyond, it
    only goes on in straight lines.
    """

    terms: tuple[Term, ...]
    errors: FitErrors
    seen: Mapping[str, tuple[int, int]]
    fitted_on: Mapping[str, object] = field(default_factory=dict)
    _by_index: tuple[tuple[int, int, float], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        for term in self.terms:
            if term.name not in COUNTS:
                raise ValueError(f"nothing is counted as {term.name!r}: {', '.join(COUNTS)}")
            if term.above < 0 or not 0 <= term.ns < float("inf"):
                raise ValueError(f"the term of {term.name} must have numbers of at least 0")
        by_index = tuple((COUNTS.index(name), above, ns) for name, above, ns in self.terms)
        object.__setattr__(self, "_by_index", by_index)

    def step_ns(self, shape: StepShape) -> int:
        counts = count(shape)
        total = 0.0
        for index, above, ns in self._by_index:
            if (excess := counts[index] - above) > 0:
                total += excess * ns
        return max(1, round(total))

    def terms_ns(self, shape: StepShape) -> Mapping[str, float]:
        """By what they count; those of one count with different knots are one."""
        counts = count(shape)
        times: dict[str, float] = {}
        for index, above, ns in self._by_index:
            name = COUNTS[index]
            times[name] = times.get(name, 0.0) + max(0, counts[index] - above) * ns
        return times

    def beyond(self, shapes: npt.NDArray[np.int64]) -> dict[str, tuple[int, int]]:
        """The least and the most of each count that is not all within `seen`.

        `shapes`: int64 [steps, fields of StepShape].
        """
        found: dict[str, tuple[int, int]] = {}
        for name, column in zip(COUNTS, count(StepShape(*shapes.T)), strict=True):
            least, most = int(np.min(column, initial=_LARGEST)), int(np.max(column, initial=0))
            seen_least, seen_most = self.seen.get(name, (0, _LARGEST))
            if len(shapes) and (least < seen_least or most > seen_most):
                found[name] = least, most
        return found


def count(shape: StepShape) -> tuple[int, ...]:
    """Of each of COUNTS, in their order; of many steps at once where the fields are columns."""
    prefill_tokens, prefills, prefill_attended, context, decodes, attended, samples = shape
    return (
        1,
        samples > 0,
        prefills > 0,
        prefill_tokens + decodes,
        samples,
        decodes,
        attended,
        prefills,
        prefill_attended,
        context,
    )


def fit(
    observations: Observations,
    *,
    fitted_on: Mapping[str, object] | None = None,
    held_out_every: int = 5,
) -> FittedModel:
    """Fit to all but every `held_out_every`-th step, and measure the errors on those.

    Terms are chosen by relative errors, so that short steps count as much as long ones, and without
    outliers, which a machine makes that does something else at times. The coefficients are then of
    all steps but stalls, so that what others take from this server is in them, and no total is
    short by it. Raises ValueError for too few steps.
    """
    if len(observations) < MIN_STEPS:
        raise ValueError(
            f"{len(observations)} steps are too few for a fit, which takes {MIN_STEPS}: "
            "measure for longer"
        )
    if not 2 <= held_out_every <= MIN_STEPS:
        raise ValueError(f"held_out_every must be in [2, {MIN_STEPS}], got {held_out_every}")
    is_held_out = np.arange(len(observations)) % held_out_every == held_out_every - 1
    seen, unseen = observations.where(~is_held_out), observations.where(is_held_out)
    counts = _counts(seen)
    candidates = _candidates(counts)
    columns = _columns(counts, candidates)
    ns, is_kept = _robust(columns, seen.durations_ns)
    needed = [candidates.index((name, 0)) for name in _NEEDED]
    useful = _useful(columns[is_kept], seen.durations_ns[is_kept], columns[is_kept] @ ns, needed)
    chosen = [candidates[column] for column in useful]
    ns, is_kept = _unbiased(columns[:, useful], seen.durations_ns)
    most_ns = ns * columns[:, useful].max(axis=0)
    terms = tuple(
        Term(name, above, float(each))
        for (name, above), each, most in zip(chosen, ns, most_ns, strict=True)
        if most >= 1  # what never comes to a nanosecond is the rounding of a zero
    )
    predicted = _columns(_counts(unseen), chosen) @ ns
    return FittedModel(
        terms=terms,
        errors=_errors(unseen.durations_ns, predicted, is_kept),
        seen={name: (int(column.min()), int(column.max())) for name, column in counts.items()},
        fitted_on=dict(fitted_on or {}),
    )


def predict_ns(model: FittedModel, observations: Observations) -> F64:
    """Of every step, [steps]."""
    chosen = [(term.name, term.above) for term in model.terms]
    return _columns(_counts(observations), chosen) @ np.array([term.ns for term in model.terms])


def _counts(observations: Observations) -> dict[str, npt.NDArray[np.int64]]:
    rows = [count(StepShape(*row)) for row in observations.shapes.tolist()]
    table = np.array(rows, dtype=np.int64).reshape(-1, len(COUNTS))
    return dict(zip(COUNTS, table.T, strict=True))


def _candidates(counts: Mapping[str, npt.NDArray[np.int64]]) -> list[tuple[str, int]]:
    """Every count, and knots that some steps lie on either side of."""
    found = [(name, 0) for name in COUNTS if name not in _NOT_FITTED]
    for name, knots in (("tokens", _TOKEN_KNOTS), ("samples", _SAMPLE_KNOTS)):
        column = counts[name]
        found += [(name, knot) for knot in knots if column.min() < knot < column.max()]
    return found


def _columns(counts: Mapping[str, npt.NDArray[np.int64]], chosen: Sequence[tuple[str, int]]) -> F64:
    columns = [np.maximum(0, counts[name] - above) for name, above in chosen]
    return np.stack(columns, axis=1).astype(np.float64)


def _robust(columns: F64, durations_ns: F64) -> tuple[F64, npt.NDArray[np.bool_]]:
    """Coefficients, and which steps they were fitted to in the end.

    The first round weighs by what was measured; later ones by what is predicted, which noise does
    not shorten.
    """
    is_kept = np.ones(len(durations_ns), dtype=bool)
    size = durations_ns
    ns = np.zeros(columns.shape[1])
    for _ in range(_ROUNDS):
        weights = 1.0 / size[is_kept]
        ns = non_negative_least_squares(
            columns[is_kept] * weights[:, None], durations_ns[is_kept] * weights
        )
        predicted = columns @ ns
        size = np.maximum(predicted, 0.1 * durations_ns)
        off = (durations_ns - predicted) / size
        spread = 1.4826 * float(np.median(np.abs(off - np.median(off))))
        is_kept = np.abs(off - np.median(off)) <= max(_OUTLIER * spread, _NEVER_AN_OUTLIER)
    return ns, is_kept


def _unbiased(columns: F64, durations_ns: F64) -> tuple[F64, npt.NDArray[np.bool_]]:
    """Coefficients, and which steps they were fitted to: all but stalls.

    Squares weighted by one over the predicted time: the predicted times of all steps add up to the
    measured ones, whatever the noise is like, and so do those of the steps with any one term, each
    weighted by its share.
    """
    ns, _ = _robust(columns, durations_ns)
    is_kept = np.ones(len(durations_ns), dtype=bool)
    for _ in range(_ROUNDS):
        predicted = np.maximum(columns @ ns, 1.0)
        is_kept = durations_ns <= _STALL * predicted
        weights = predicted[is_kept] ** -0.5
        ns = non_negative_least_squares(
            columns[is_kept] * weights[:, None], durations_ns[is_kept] * weights
        )
    return ns, is_kept


def _useful(columns: F64, durations_ns: F64, size: F64, needed: Sequence[int]) -> list[int]:
    """Columns left when those are gone, one by one, whose going lowers Schwarz's criterion."""
    weights = 1.0 / np.maximum(size, 0.1 * durations_ns)
    matrix, target = columns * weights[:, None], durations_ns * weights
    left = list(range(columns.shape[1]))
    score = _criterion(matrix, target, left)
    while droppable := [column for column in left if column not in needed]:
        scores = {c: _criterion(matrix, target, [o for o in left if o != c]) for c in droppable}
        worst = min(scores, key=scores.__getitem__)
        if scores[worst] > score:
            break
        score = scores[worst]
        left.remove(worst)
    return left


def _criterion(matrix: F64, target: F64, chosen: list[int]) -> float:
    """Schwarz (Annals of Statistics 6, 1978): fit against the number of terms; less is better."""
    rows = len(target)
    ns = non_negative_least_squares(matrix[:, chosen], target)
    error = float(((matrix[:, chosen] @ ns - target) ** 2).sum())
    return rows * float(np.log(max(error, 1e-300) / rows)) + len(chosen) * float(np.log(rows))


def _errors(measured: F64, predicted: F64, is_kept: npt.NDArray[np.bool_]) -> FitErrors:
    off = np.abs(predicted / measured - 1)
    return FitErrors(
        num_fitted=int(is_kept.sum()),
        num_left_out=int((~is_kept).sum()),
        num_held_out=len(measured),
        median=float(np.median(off)),
        p90=float(np.quantile(off, 0.9)),
        total=float(predicted.sum() / measured.sum() - 1),
    )
